"""Writes the npz files here: networks by PyTorch in double precision, their values, and their
variables after ten steps of AdamW.

Run it as `python3 generate.py`; it needs torch, transformers and numpy. In each file:

    begin.<path>, end.<path>   each variable before the first step and after the tenth, by the name
                               and in the layout of this library
    losses                     the loss before each step
    value.<n>                  results of the network before the first step
    the rest                   the inputs

GPT-2, BERT and Llama are those of transformers. The other networks are written here with PyTorch's
functions.
"""

import os

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

RATE = 3e-3
STEPS = 10


def write(name, arrays):
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, name + ".npz")
    np.savez_compressed(path, **{n: np.ascontiguousarray(a) for n, a in arrays.items()})
    print(
        name,
        sum(a.size for n, a in arrays.items() if n.startswith("begin.")),
        "numbers,",
        os.path.getsize(path),
        "bytes",
    )


def numbers(tensors):
    return {name: t.detach().numpy().copy() for name, t in tensors.items()}


def draw(shapes, scale=0.4):
    """Variables by path: norms near one, all others normally distributed."""
    drawn = {}
    for path, shape in shapes.items():
        norm = (
            "norm" in path.lower() or "ln_" in path or "bn" in path or "downsample.1" in path
        ) and path.endswith("weight")
        numbers = torch.randn(*shape) * (0.1 if norm else scale) + (1.0 if norm else 0.0)
        # Few significant bits, so that the file compresses well.
        drawn[path] = torch.round(numbers * 1024) / 1024
    return drawn


def record(name, shapes, given, run, running=None, after=None):
    """Trains a network and writes its file. `run` maps variables by path to the loss and the
    network's values, and updates the statistics `running`."""
    variables = {path: t.requires_grad_() for path, t in draw(shapes).items()}
    running = running or {}
    arrays = {f"begin.{path}": a for path, a in numbers(variables | running).items()}
    optimiser = torch.optim.AdamW(
        variables.values(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    losses = []
    for step in range(STEPS):
        optimiser.zero_grad()
        loss, values = run(variables, running)
        if step == 0:
            arrays |= numbers({f"value.{n}": v for n, v in enumerate(values)})
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    arrays |= {f"end.{path}": a for path, a in numbers(variables | running).items()}
    if after:
        arrays |= numbers(after(variables, running))
    write(name, arrays | {"losses": np.array(losses)} | given)


def integers(high, *shape):
    return torch.randint(high, shape)


def small(t):
    return t.numpy().astype(np.int32)


def linear(p, path, x):
    return x @ p[path + ".weight"] + p[path + ".bias"]


def conv(p, path, x, **options):
    bias = p.get(path + ".bias")
    return F.conv2d(x, p[path + ".weight"].permute(3, 2, 0, 1), bias, **options)


def first(images):
    """Images with channels first, the layout of PyTorch."""
    return images.permute(0, 3, 1, 2)


def last(images):
    return images.permute(0, 2, 3, 1)


def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel

    none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    config = GPT2Config(
        vocab_size=13,
        n_positions=7,
        n_embd=12,
        n_layer=2,
        n_head=3,
        attn_implementation="eager",
        **none,
    )
    model = GPT2LMHeadModel(config).double()
    shapes = {n.removeprefix("transformer."): tuple(p.shape) for n, p in model.named_parameters()}
    x, y = integers(13, 3, 6), integers(13, 3, 6)

    def run(p, _):
        logits = functional_call(
            model, {"transformer." + n: t for n, t in p.items()}, (), dict(input_ids=x)
        ).logits
        return F.cross_entropy(logits.flatten(0, 1), y.flatten()), [logits]

    record("gpt", shapes, {"x": small(x), "y": small(y)}, run)


def bert():
    from transformers import BertConfig, BertModel

    none = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    size = dict(
        vocab_size=17,
        max_position_embeddings=9,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
    )
    # No padding token, because its embedding would not be trained.
    config = BertConfig(attn_implementation="eager", pad_token_id=None, **size, **none)
    model = BertModel(config).double()
    turned = lambda n, t: t.t() if t.dim() == 2 and not n.startswith("embeddings.") else t
    shapes = {n: tuple(turned(n, p).shape) for n, p in model.named_parameters()}
    x, kinds = integers(17, 4, 7), integers(2, 4, 7)
    mask = torch.arange(7)[None, :] < torch.tensor([7, 3, 1, 5])[:, None]
    wanted = [torch.randn(4, 12) for _ in range(2)]

    def run(p, _):
        options = dict(input_ids=x, attention_mask=mask.long(), token_type_ids=kinds)
        out = functional_call(model, {n: turned(n, t) for n, t in p.items()}, (), options)
        options["token_type_ids"] = torch.zeros_like(x)
        alone = functional_call(
            model, {n: turned(n, t) for n, t in p.items()}, (), options
        ).last_hidden_state
        mean = (alone * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        embedding = F.normalize(mean, dim=1)
        # Padded positions are not compared.
        hidden = out.last_hidden_state * mask[..., None]
        loss = (
            ((embedding - wanted[0]) ** 2).mean()
            + ((out.pooler_output - wanted[1]) ** 2).mean()
            + (hidden**4).mean()
        )
        return loss, [hidden, out.pooler_output, embedding]

    given = {
        "x": small(x),
        "types": small(kinds),
        "mask": mask.numpy(),
        "wanted.0": wanted[0].numpy(),
        "wanted.1": wanted[1].numpy(),
    }
    record("bert", shapes, given, run)


def llama():
    from layers import frequencies
    from transformers import LlamaConfig, LlamaForCausalLM

    width, base = 16, 50.0
    size = dict(
        vocab_size=13,
        hidden_size=width,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=9,
        rms_norm_eps=1e-5,
    )
    config = LlamaConfig(attn_implementation="sdpa", tie_word_embeddings=False, **size)

    class Rotation(torch.nn.Module):
        # That of transformers computes in f32.
        def forward(self, x, position_ids):
            angles = position_ids[..., None] * frequencies(width // 4, base)
            angles = torch.cat([angles, angles], -1)
            return angles.cos(), angles.sin()

    # So do its norms.
    norm = lambda: torch.nn.RMSNorm(width, eps=1e-5)
    model = LlamaForCausalLM(config).double()
    model.model.rotary_emb, model.model.norm = Rotation(), norm()
    for layer in model.model.layers:
        layer.input_layernorm, layer.post_attention_layernorm = norm(), norm()
    turned = lambda n, t: t.t() if t.dim() == 2 and "embed_tokens" not in n else t
    shapes = {n: tuple(turned(n, p).shape) for n, p in model.named_parameters()}
    x, y = integers(13, 3, 6), integers(13, 3, 6)

    def run(p, _):
        logits = functional_call(
            model, {n: turned(n, t) for n, t in p.items()}, (), dict(input_ids=x)
        ).logits
        return F.cross_entropy(logits.flatten(0, 1), y.flatten()), [logits]

    record("llama", shapes, {"x": small(x), "y": small(y)}, run)


def mlp():
    widths = [5, 9, 7, 3]
    shapes = {}
    for n, (i, o) in enumerate(zip(widths, widths[1:])):
        shapes |= {f"layers.{n}.weight": (i, o), f"layers.{n}.bias": (o,)}
    x, y = torch.randn(6, 5), integers(3, 6)

    def run(p, _):
        logits = linear(
            p, "layers.2", F.silu(linear(p, "layers.1", F.silu(linear(p, "layers.0", x))))
        )
        return F.cross_entropy(logits, y), [logits]

    record("mlp", shapes, {"x": x.numpy(), "y": small(y)}, run)


def convnet():
    shapes = {
        "conv1.weight": (3, 3, 2, 3),
        "conv1.bias": (3,),
        "conv2.weight": (3, 3, 3, 5),
        "conv2.bias": (5,),
    }
    shapes |= {"fc1.weight": (30, 7), "fc1.bias": (7,), "fc2.weight": (7, 4), "fc2.bias": (4,)}
    x, y = torch.randn(3, 8, 12, 2), integers(4, 3)

    def run(p, _):
        z = F.max_pool2d(F.relu(conv(p, "conv1", first(x), padding=1)), 2)
        z = F.max_pool2d(F.relu(conv(p, "conv2", z, padding=1)), 2)
        logits = linear(p, "fc2", F.relu(linear(p, "fc1", last(z).flatten(1))))
        return F.cross_entropy(logits, y), [logits]

    record("convnet", shapes, {"x": x.numpy(), "y": small(y)}, run)


def lstm():
    vocabulary, embedding, width = 9, 5, 6
    shapes = {"embedding.weight": (vocabulary, embedding)}
    for n, inputs in enumerate((embedding, width)):
        shapes |= {
            f"lstm.{n}.input": (inputs, 4 * width),
            f"lstm.{n}.recurrent": (width, 4 * width),
            f"lstm.{n}.bias": (4 * width,),
        }
    shapes |= {"out.weight": (width, vocabulary), "out.bias": (vocabulary,)}
    x, y = integers(vocabulary, 7, 3), integers(vocabulary, 7, 3)
    layers = torch.nn.LSTM(embedding, width, num_layers=2)

    def run(p, _):
        named = {}
        for n in range(2):
            named |= {
                f"weight_ih_l{n}": p[f"lstm.{n}.input"].t(),
                f"weight_hh_l{n}": p[f"lstm.{n}.recurrent"].t(),
            }
            named |= {f"bias_ih_l{n}": p[f"lstm.{n}.bias"], f"bias_hh_l{n}": torch.zeros(4 * width)}
        all, (hidden, cell) = functional_call(layers, named, (p["embedding.weight"][x],))
        logits = linear(p, "out", all)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten()), [logits, hidden[1], cell[0]]

    record("lstm", shapes, {"x": small(x), "y": small(y)}, run)


def resnet():
    width, blocks, classes = 2, [1, 2, 1, 1], 3
    shapes, channels = {"conv1.weight": (7, 7, 3, width)}, {"bn1": width}
    inputs = width
    for stage, count in enumerate(blocks):
        within = width << stage
        for n in range(count):
            path = f"layer{stage + 1}.{n}"
            shapes[f"{path}.conv1.weight"] = (1, 1, inputs, within)
            shapes[f"{path}.conv2.weight"] = (3, 3, within, within)
            shapes[f"{path}.conv3.weight"] = (1, 1, within, 4 * within)
            channels |= {f"{path}.bn1": within, f"{path}.bn2": within, f"{path}.bn3": 4 * within}
            if n == 0:
                shapes[f"{path}.downsample.0.weight"] = (1, 1, inputs, 4 * within)
                channels[f"{path}.downsample.1"] = 4 * within
            inputs = 4 * within
    for path, count in channels.items():
        shapes |= {f"{path}.weight": (count,), f"{path}.bias": (count,)}
    shapes |= {"fc.weight": (inputs, classes), "fc.bias": (classes,)}
    running = {}
    for path, count in channels.items():
        running |= {
            f"{path}.running_mean": torch.randn(count),
            f"{path}.running_var": 0.5 + torch.rand(count),
        }
    images, y = integers(16, 3, 48, 64, 3), integers(classes, 3)
    x = images / 16

    def forward(p, r, training):
        def norm(path, z):
            mean, var = r[path + ".running_mean"], r[path + ".running_var"]
            return F.batch_norm(
                z, mean, var, p[path + ".weight"], p[path + ".bias"], training, 0.1, 1e-5
            )

        z = F.relu(norm("bn1", conv(p, "conv1", first(x), stride=2, padding=3)))
        z = F.max_pool2d(z, 3, 2, 1)
        for stage, count in enumerate(blocks):
            for n in range(count):
                path, stride = f"layer{stage + 1}.{n}", 2 if n == 0 and stage > 0 else 1
                w = F.relu(norm(path + ".bn1", conv(p, path + ".conv1", z)))
                w = F.relu(
                    norm(path + ".bn2", conv(p, path + ".conv2", w, stride=stride, padding=1))
                )
                w = norm(path + ".bn3", conv(p, path + ".conv3", w))
                if n == 0:
                    z = norm(
                        path + ".downsample.1", conv(p, path + ".downsample.0", z, stride=stride)
                    )
                z = F.relu(w + z)
        return linear(p, "fc", z.mean((2, 3)))

    def run(p, r):
        logits = forward(p, r, True)
        return F.cross_entropy(logits, y), [logits]

    after = lambda p, r: {"predicted": forward(p, r, False)}
    record(
        "resnet", shapes, {"x": images.numpy().astype(np.uint8), "y": small(y)}, run, running, after
    )


def unet():
    channels, width, depth, classes = 1, 2, 2, 3
    level = lambda n: width << n
    shapes = {}

    def pair(path, i, o):
        for name, inputs in (("conv1", i), ("conv2", o)):
            shapes[f"{path}.{name}.weight"] = (3, 3, inputs, o)
            shapes[f"{path}.{name}.bias"] = (o,)

    for n in range(depth):
        pair(f"down.{n}", level(n - 1) if n else channels, level(n))
        up = depth - 1 - n
        shapes |= {
            f"up.{n}.up.weight": (2, 2, level(up + 1), level(up)),
            f"up.{n}.up.bias": (level(up),),
        }
        pair(f"up.{n}.pair", level(up + 1), level(up))
    pair("bottom", level(depth - 1), level(depth))
    shapes |= {"out.weight": (1, 1, width, classes), "out.bias": (classes,)}
    x, y = torch.randn(2, 12, 8, channels), integers(classes, 2, 12, 8)

    def two(p, path, z):
        return F.relu(
            conv(p, path + ".conv2", F.relu(conv(p, path + ".conv1", z, padding=1)), padding=1)
        )

    def run(p, _):
        z, seen = first(x), []
        for n in range(depth):
            seen.append(two(p, f"down.{n}", z))
            z = F.max_pool2d(seen[-1], 2)
        z = two(p, "bottom", z)
        for n in range(depth):
            z = F.conv_transpose2d(
                z, p[f"up.{n}.up.weight"].permute(2, 3, 0, 1), p[f"up.{n}.up.bias"], stride=2
            )
            z = two(p, f"up.{n}.pair", torch.cat([seen.pop(), z], 1))
        logits = last(conv(p, "out", z))
        return F.cross_entropy(logits.flatten(0, 2), y.flatten()), [logits]

    record("unet", shapes, {"x": x.numpy(), "y": small(y)}, run)


def main():
    torch.set_default_dtype(torch.float64)
    for n, network in enumerate((gpt, bert, mlp, convnet, lstm, resnet, unet, llama)):
        torch.manual_seed(n)
        network()


if __name__ == "__main__":
    main()
