"""Writes the files in papers/: models from their papers with their derivatives (see `cases.py`).

Run it as `python3 papers.py`; it needs torch, transformers and numpy. A file has one case, of the
model's name. Its inputs are those of the model, and its variables by their key paths. Llama is that
of transformers; the other models are written here with PyTorch's modules and functions. Models and
losses that choose by order or by position are loops over examples.
"""

import contextlib
import math

import torch
import torch.nn.functional as F
from cases import Cases, draw
from layers import first, last
from torch.func import functional_call


def variables(shapes, scale=0.4):
    """Variables by path; weights of norms are near 1."""
    near_one = lambda path: "norm" in path and path.endswith("weight")
    return {p: draw(*s, scale=scale) + near_one(p) for p, s in shapes.items()}


def linear(path, inputs, outputs, bias=True):
    shapes = {f"{path}.weight": (inputs, outputs)}
    return shapes | ({f"{path}.bias": (outputs,)} if bias else {})


def convolution(path, inputs, outputs, *kernel):
    return {f"{path}.weight": (*kernel, inputs, outputs), f"{path}.bias": (outputs,)}


def norm(path, width):
    return {f"{path}.weight": (width,), f"{path}.bias": (width,)}


def gru(path, inputs, width):
    return {
        f"{path}.input": (inputs, 3 * width),
        f"{path}.recurrent": (width, 3 * width),
        f"{path}.bias": (3 * width,),
        f"{path}.recurrent_bias": (width,),
    }


def lstm(path, inputs, width):
    return {
        f"{path}.input": (inputs, 4 * width),
        f"{path}.recurrent": (width, 4 * width),
        f"{path}.bias": (4 * width,),
    }


def affine(p, path, x):
    y = x @ p[f"{path}.weight"]
    return y + p[f"{path}.bias"] if f"{path}.bias" in p else y


def convolve(p, path, images, **options):
    """Of images with channels first."""
    weight = p[f"{path}.weight"].permute(3, 2, 0, 1)
    return F.conv2d(images, weight, p[f"{path}.bias"], **options)


@contextlib.contextmanager
def doubles():
    """Runs code that asks for single precision in double precision."""
    single, cast = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = single, cast


def llama(cases):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(vocab_size=11, hidden_size=12, intermediate_size=10, num_hidden_layers=2)
    heads = dict(num_attention_heads=6, num_key_value_heads=3)
    config = LlamaConfig(
        **sizes, **heads, rms_norm_eps=1e-6, tie_word_embeddings=False, attn_implementation="sdpa"
    )
    model = LlamaForCausalLM(config).double()
    name = lambda path: path.removeprefix("model.")
    turned = lambda path, t: t.t() if t.dim() == 2 and "embed" not in path else t
    shapes = {name(n): turned(n, t).shape for n, t in model.named_parameters()}

    def run(tokens, **p):
        weights = {n: turned(n, p[name(n)]) for n, _ in model.named_parameters()}
        inputs = tokens[:, :-1]
        with doubles():
            options = dict(input_ids=inputs, use_cache=False, position_ids=torch.arange(5)[None])
            logits = functional_call(model, weights, (), options).logits
        assert logits.dtype == torch.float64
        return logits, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    cases.add("llama", run, tokens=torch.randint(11, (2, 6)), **variables(shapes))


def mixture_of_experts(cases):
    """Each example and each expert in turn."""
    count, width, inner_width, experts, k = 9, 4, 3, 5, 2

    def run(x, normal, gate, noise, inner, outer):
        clean, deviation = x @ gate, F.softplus(x @ noise)
        noisy = clean + normal * deviation
        importance, load, results = [0.0] * experts, [0.0] * experts, []
        for n in range(count):
            chosen = noisy[n].topk(k).indices
            gates = torch.softmax(noisy[n, chosen], 0)
            y = 0.0
            for g, e in zip(gates, chosen.tolist()):
                y = y + g * (F.relu(x[n] @ inner[e]) @ outer[e])
                importance[e] = importance[e] + g
            results.append(y)
            for e in range(experts):
                others = torch.cat([noisy[n, :e], noisy[n, e + 1 :]])
                margin = (clean[n, e] - others.topk(k).values[-1]) / deviation[n, e]
                load[e] = load[e] + torch.special.ndtr(margin)
        square = lambda t: (t.std(unbiased=False) / t.mean()) ** 2
        return torch.stack(results), square(torch.stack(importance)), square(torch.stack(load))

    cases.add(
        "mixture_of_experts",
        run,
        x=draw(count, width),
        normal=draw(count, experts),
        gate=draw(width, experts),
        noise=draw(width, experts),
        inner=draw(experts, width, inner_width),
        outer=draw(experts, inner_width, width),
    )


def diffusion(cases):
    channels, width, groups, time = 2, 4, 2, 16

    def block_shapes(path, inputs, outputs):
        shapes = norm(f"{path}.norms.0", inputs)
        shapes |= norm(f"{path}.norms.1", outputs) | norm(f"{path}.norms.2", outputs)
        shapes |= convolution(f"{path}.convolutions.0", inputs, outputs, 3, 3)
        shapes |= convolution(f"{path}.convolutions.1", outputs, outputs, 3, 3)
        shapes |= linear(f"{path}.time", time, outputs) | linear(f"{path}.mixed", outputs, outputs)
        shapes |= linear(f"{path}.queries_keys_values", outputs, 3 * outputs)
        return shapes | (linear(f"{path}.shortcut", inputs, outputs) if inputs != outputs else {})

    shapes = linear("time.0", width, time) | linear("time.1", time, time)
    shapes |= convolution("begin", channels, width, 3, 3) | convolution("halve", width, width, 3, 3)
    shapes |= convolution("double", 2 * width, 2 * width, 3, 3) | norm("norm", width)
    shapes |= convolution("end", width, channels, 3, 3) | block_shapes("down", width, width)
    shapes |= block_shapes("middle", width, 2 * width) | block_shapes("up", 3 * width, width)

    def normalize(p, path, x):
        return F.group_norm(x, groups, p[f"{path}.weight"], p[f"{path}.bias"], 1e-5)

    def block(p, path, x, t):
        h = F.silu(normalize(p, f"{path}.norms.0", x))
        h = convolve(p, f"{path}.convolutions.0", h, padding=1)
        h = h + affine(p, f"{path}.time", F.silu(t))[:, :, None, None]
        h = F.silu(normalize(p, f"{path}.norms.1", h))
        h = convolve(p, f"{path}.convolutions.1", h, padding=1)
        if f"{path}.shortcut.weight" in p:
            x = first(affine(p, f"{path}.shortcut", last(x)))
        x = x + h
        pixels = normalize(p, f"{path}.norms.2", x).flatten(2).transpose(1, 2)
        q, k, v = affine(p, f"{path}.queries_keys_values", pixels).chunk(3, -1)
        mixed = affine(p, f"{path}.mixed", F.scaled_dot_product_attention(q, k, v))
        return x + mixed.transpose(1, 2).reshape(x.shape)

    def run(images, times, noise, **p):
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)[times][:, None, None, None]
        x = first(kept.sqrt() * images + (1 - kept).sqrt() * noise)
        theta = torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2 - 1))
        angles = times[:, None] * theta
        t = torch.cat([angles.sin(), angles.cos()], 1)
        t = affine(p, "time.1", F.silu(affine(p, "time.0", t)))
        down = block(p, "down", convolve(p, "begin", x, padding=1), t)
        middle = block(p, "middle", convolve(p, "halve", down, stride=2, padding=1), t)
        wide = F.interpolate(middle, scale_factor=2, mode="nearest")
        up = torch.cat([convolve(p, "double", wide, padding=1), down], 1)
        up = block(p, "up", up, t)
        found = last(convolve(p, "end", F.silu(normalize(p, "norm", up)), padding=1))
        return F.mse_loss(found, noise)

    images, noise = draw(3, 4, 4, channels), draw(3, 4, 4, channels)
    times = torch.tensor([7, 350, 999])
    inputs = dict(images=images, times=times, noise=noise)
    cases.add("diffusion", run, **inputs, **variables(shapes))


def dqn(cases):
    observation, width, actions, batch = 6, 5, 3, 8
    shapes = linear("hidden.0", observation, width) | linear("hidden.1", width, width)
    shapes |= linear("output", width, actions)
    network = torch.nn.Sequential(
        torch.nn.Linear(observation, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, actions),
    )
    places = {"hidden.0": "0", "hidden.1": "2", "output": "4"}

    def values(p, prefix, x):
        weights = {}
        for path, place in places.items():
            weights[f"{place}.weight"] = p[f"{prefix}.{path}.weight"].t()
            weights[f"{place}.bias"] = p[f"{prefix}.{path}.bias"]
        return functional_call(network, weights, (x,))

    def run(observations, actions, rewards, ended, next, **p):
        value = values(p, "network", observations).gather(1, actions[:, None]).squeeze(1)
        future = values(p, "target", next).max(1).values
        returns = torch.where(ended, rewards, rewards + 0.9 * future)
        error = value - returns
        assert 0 < (error.abs() > 1).sum() < batch
        return F.smooth_l1_loss(value, returns)

    inputs = dict(
        observations=draw(batch, observation, scale=2.0),
        actions=torch.randint(actions, (batch,)),
        rewards=draw(batch),
        ended=torch.arange(batch) % 3 == 0,
        next=draw(batch, observation, scale=2.0),
    )
    p = {f"network.{n}": t for n, t in variables(shapes, 0.7).items()}
    target = {f"target.{n}": t for n, t in variables(shapes, 0.7).items()}
    constants = ("rewards", "next", *target)
    cases.add("dqn", run, constants=constants, **inputs, **p, **target)


def vae(cases):
    pixels, hidden, code, batch = 7, 5, 2, 4
    shapes = linear("encoder.0", pixels, hidden) | linear("encoder.1", hidden, 2 * code)
    shapes |= linear("decoder.0", code, hidden) | linear("decoder.1", hidden, pixels)

    def run(x, noise, **p):
        output = affine(p, "encoder.1", torch.tanh(affine(p, "encoder.0", x)))
        mean, log_variance = output.chunk(2, 1)
        posterior = torch.distributions.Normal(mean, log_variance.exp().sqrt())
        prior = torch.distributions.Normal(torch.zeros(code), torch.ones(code))
        z = mean + posterior.stddev * noise
        logits = affine(p, "decoder.1", torch.tanh(affine(p, "decoder.0", z)))
        likelihood = torch.distributions.Bernoulli(logits=logits, validate_args=False).log_prob(x)
        divergence = torch.distributions.kl_divergence(posterior, prior)
        return -likelihood.sum(1), divergence.sum(1)

    x = torch.rand(batch, pixels).mul(16).round() / 16
    cases.add("vae", run, x=x, noise=draw(batch, code), **variables(shapes))


def translator(cases):
    source, target, embedding, width = 7, 6, 3, 4
    shapes = {"source.weight": (source, embedding), "target.weight": (target, embedding)}
    shapes |= gru("forward", embedding, width) | gru("backward", embedding, width)
    shapes |= linear("begin", width, width) | gru("decoder", embedding + 2 * width, width)
    shapes |= linear("from_state", width, width) | linear("from_source", 2 * width, width, False)
    shapes |= {"score": (width,)} | linear("maxout", 3 * width + embedding, 2 * width)
    shapes |= linear("output", width, target, False)
    encoder = torch.nn.GRU(embedding, width, bidirectional=True)
    cell = torch.nn.GRUCell(embedding + 2 * width, width)

    def weights(p, path, suffix=""):
        return {
            f"weight_ih{suffix}": p[f"{path}.input"].t(),
            f"weight_hh{suffix}": p[f"{path}.recurrent"].t(),
            f"bias_ih{suffix}": p[f"{path}.bias"],
            f"bias_hh{suffix}": torch.cat([torch.zeros(2 * width), p[f"{path}.recurrent_bias"]]),
        }

    def run(sentences, translations, **p):
        exists = sentences != 0
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            F.embedding(sentences, p["source.weight"]), exists.sum(0), enforce_sorted=False
        )
        both = weights(p, "forward", "_l0") | weights(p, "backward", "_l0_reverse")
        annotations, states = functional_call(encoder, both, (packed,))
        annotations, _ = torch.nn.utils.rnn.pad_packed_sequence(annotations)
        state = torch.tanh(affine(p, "begin", states[1]))
        logits = []
        for word in F.embedding(translations[:-1], p["target.weight"]):
            inner = affine(p, "from_state", state) + affine(p, "from_source", annotations)
            scores = torch.tanh(inner) @ p["score"]
            alignment = torch.softmax(scores.masked_fill(~exists, -math.inf), 0)
            context = (alignment[..., None] * annotations).sum(0)
            units = affine(p, "maxout", torch.cat([state, word, context], 1))
            logits.append(affine(p, "output", F.max_pool1d(units[:, None], 2).squeeze(1)))
            step = torch.cat([word, context], 1)
            state = functional_call(cell, weights(p, "decoder"), (step, state))
        logits = torch.stack(logits)
        words = translations[1:].flatten()
        return logits, F.cross_entropy(logits.flatten(0, 1), words, ignore_index=0)

    within = lambda lengths: torch.arange(5)[:, None] < torch.tensor(lengths)
    sentences = torch.randint(1, source, (5, 3)) * within([5, 2, 4])
    translations = torch.randint(1, target, (5, 3)) * within([3, 5, 4])
    inputs = dict(sentences=sentences, translations=translations)
    cases.add("translator", run, **inputs, **variables(shapes, 0.7))


def pointnet(cases):
    width, classes, batch, count = 4, 3, 5, 3
    widths = {
        "transform.points": [3, width, 2 * width],
        "transform.set": [2 * width, width],
        "points": [3, width],
        "features.points": [width, width, 2 * width],
        "features.set": [2 * width, width],
        "more": [width, 2 * width],
        "set": [2 * width, width],
    }
    shapes, norms = {}, []
    for path, sizes in widths.items():
        for n, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            shapes |= linear(f"{path}.{n}.linear", inputs, outputs, False)
            shapes |= norm(f"{path}.{n}.norm", outputs)
            norms.append(outputs)
    shapes |= linear("transform.output", width, 9) | linear("features.output", width, width**2)
    shapes |= linear("output", width, classes)

    def run(x, **p):
        after = []

        def layers(path, x):
            for n in range(len(widths[path]) - 1):
                running = [p[f"{kind}.{len(after) // 2}"].clone() for kind in ("mean", "var")]
                x = affine(p, f"{path}.{n}.linear", x).movedim(-1, 1)
                weight, bias = (p[f"{path}.{n}.norm.{kind}"] for kind in ("weight", "bias"))
                x = F.batch_norm(x, *running, weight, bias, training=True).movedim(1, -1)
                x = F.relu(x)
                after.extend(running)
            return x

        def transform(path, x, k):
            flat = layers(f"{path}.set", layers(f"{path}.points", x).amax(1))
            return affine(p, f"{path}.output", flat).view(-1, k, k) + torch.eye(k)

        y = layers("points", torch.bmm(x, transform("transform", x, 3)))
        matrix = transform("features", y, width)
        y = layers("more", torch.bmm(y, matrix)).max(1).values
        logits = affine(p, "output", layers("set", y))
        distance = torch.linalg.matrix_norm(torch.eye(width) - torch.bmm(matrix, matrix.mT)) ** 2
        return logits, distance.mean(), *after

    running = {f"mean.{n}": draw(outputs) for n, outputs in enumerate(norms)}
    running |= {f"var.{n}": draw(outputs) ** 2 + 0.5 for n, outputs in enumerate(norms)}
    x = draw(batch, count, 3)
    cases.add("pointnet", run, constants=tuple(running), x=x, **running, **variables(shapes, 0.7))


def wavenet(cases):
    width, skip, classes, dilations = 3, 4, 256, [1, 2, 4, 1, 2, 4]
    shapes = convolution("input", classes, width, 2)
    for n in range(len(dilations)):
        shapes |= convolution(f"layers.{n}.dilated", width, 2 * width, 2)
        shapes |= linear(f"layers.{n}.skip", width, skip)
        if n + 1 < len(dilations):
            shapes |= linear(f"layers.{n}.residual", width, width)
    shapes |= linear("hidden", skip, skip) | linear("output", skip, classes)

    def causal(p, path, x, dilation=1):
        weight = p[f"{path}.weight"].permute(2, 1, 0)
        return F.conv1d(F.pad(x, (dilation, 0)), weight, p[f"{path}.bias"], dilation=dilation)

    def point(p, path, x):
        return F.conv1d(x, p[f"{path}.weight"].t()[..., None], p[f"{path}.bias"])

    def run(waves, **p):
        companded = waves.sign() * torch.log(1 + 255 * waves.abs()) / math.log(256)
        codes = torch.floor((companded + 1) / 2 * 255 + 0.5).long()
        x = F.one_hot(codes[:, :-1], classes).double().transpose(1, 2)
        x, sum = causal(p, "input", x), 0.0
        for n, dilation in enumerate(dilations):
            filter, gate = causal(p, f"layers.{n}.dilated", x, dilation).chunk(2, 1)
            gated = torch.tanh(filter) * torch.sigmoid(gate)
            sum = sum + point(p, f"layers.{n}.skip", gated)
            if n + 1 < len(dilations):
                x = x + point(p, f"layers.{n}.residual", gated)
        logits = point(p, "output", F.relu(point(p, "hidden", F.relu(sum))))
        return F.cross_entropy(logits, codes[:, 1:]), logits[:, :, -1]

    waves = torch.sin(torch.arange(20) * torch.tensor([[0.3], [0.9]])) * 0.8
    cases.add("wavenet", run, constants=("waves",), waves=waves, **variables(shapes, 0.7))


def siamese(cases):
    """The pairs of the loss in turn."""
    size, (one, two), width, margin = 8, (2, 3), 4, 0.2
    shapes = convolution("convolutions.0", 1, one, 3, 3)
    shapes |= convolution("convolutions.1", one, two, 3, 3)
    shapes |= linear("output", (size // 4) ** 2 * two, width)

    def run(images, labels, **p):
        x = images[:, None]
        for n in range(2):
            x = F.max_pool2d(F.relu(convolve(p, f"convolutions.{n}", x, padding=1)), 2)
        e = F.normalize(affine(p, "output", last(x).flatten(1)), dim=1)
        losses, kinds = [], set()
        for a in range(len(labels)):
            for b in range(len(labels)):
                if a == b or labels[a] != labels[b]:
                    continue
                near = ((e[a] - e[b]) ** 2).sum()
                far = torch.stack([((e[a] - n) ** 2).sum() for n in e[labels != labels[a]]])
                farther = far[far > near]
                kinds.add(len(farther) > 0)
                negative = farther.min() if len(farther) else far.max()
                losses.append(F.relu(near - negative + margin))
        assert kinds == {True, False}, kinds
        return e, torch.stack(losses).mean()

    labels = torch.tensor([0, 1, 0, 2, 1, 1, 2])
    cases.add("siamese", run, images=draw(7, size, size), labels=labels, **variables(shapes))


def speech(cases):
    bands, width, classes, steps, batch = 3, 4, 5, 9, 3
    shapes = lstm("forward", bands, width) | lstm("backward", bands, width)
    shapes |= linear("output", 2 * width, classes)
    layer = torch.nn.LSTM(bands, width, bidirectional=True)

    def run(frames, frame_counts, labels, label_counts, **p):
        weights = {}
        for path, suffix in (("forward", "_l0"), ("backward", "_l0_reverse")):
            weights[f"weight_ih{suffix}"] = p[f"{path}.input"].t()
            weights[f"weight_hh{suffix}"] = p[f"{path}.recurrent"].t()
            weights[f"bias_ih{suffix}"] = p[f"{path}.bias"]
            weights[f"bias_hh{suffix}"] = torch.zeros(4 * width)
        both, _ = functional_call(layer, weights, (frames,))
        logs = F.log_softmax(affine(p, "output", both), 2)
        return logs, F.ctc_loss(logs, labels, frame_counts, label_counts)

    inputs = dict(
        frames=draw(steps, batch, bands),
        frame_counts=torch.tensor([9, 7, 8]),
        labels=torch.tensor([[1, 1, 4], [2, 3, 0], [4, 0, 0]]),
        label_counts=torch.tensor([3, 2, 1]),
    )
    cases.add("speech", run, **inputs, **variables(shapes, 0.7))


def main():
    torch.set_default_dtype(torch.float64)
    for n, model in enumerate(
        (
            llama,
            mixture_of_experts,
            diffusion,
            dqn,
            vae,
            translator,
            pointnet,
            wavenet,
            siamese,
            speech,
        )
    ):
        torch.manual_seed(n)
        cases = Cases()
        model(cases)
        cases.write(f"papers/{model.__name__}.npz")


if __name__ == "__main__":
    main()
