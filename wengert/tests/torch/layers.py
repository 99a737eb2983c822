"""Writes layers.npz: layers with their derivatives (see `cases.py`).

Run it as `python3 layers.py`; it needs torch, transformers and numpy. The inputs of a case are
those of the layer, and its variables by their key paths. Layers that PyTorch lacks are written here
with its functions. The frequencies of YaRN and of Llama 3 are those of transformers.
"""

import math

import torch
import torch.nn.functional as F
from cases import Cases, draw
from torch.func import functional_call


def first(images):
    """Images with channels first, the layout of PyTorch."""
    return images.movedim(-1, 1)


def last(images):
    return images.movedim(1, -1)


def norms(cases):
    x, weight = draw(4, 6), draw(6)
    cases.add("rms_norm", lambda x, weight: F.rms_norm(x, (6,), weight, 1e-6), x=x, weight=weight)
    x, weight, bias = draw(2, 5, 3, 6), draw(6), draw(6)
    cases.add(
        "group_norm",
        lambda x, weight, bias: last(F.group_norm(first(x), 3, weight, bias, 1e-5)),
        x=x,
        weight=weight,
        bias=bias,
    )
    cases.add(
        "instance_norm",
        lambda x, weight, bias: last(
            F.instance_norm(first(x), weight=weight, bias=bias, eps=1e-5)
        ),
        x=x,
        weight=weight,
        bias=bias,
    )


def transposed_convolution(cases):
    def convolve(x, weight, bias):
        weight = weight.permute(2, 3, 0, 1)
        return last(F.conv_transpose2d(first(x), weight, bias, stride=(2, 3)))

    cases.add(
        "conv_transpose", convolve, x=draw(2, 4, 5, 3), weight=draw(3, 2, 3, 4), bias=draw(4)
    )


def swiglu(p, x):
    gate, up, down = (p[f"{n}_proj.weight"] for n in ("gate", "up", "down"))
    return (F.silu(x @ gate) * (x @ up)) @ down


def feed_forward(cases):
    weights = {"gate": draw(4, 6), "up": draw(4, 6), "down": draw(6, 4)}
    weights = {f"{n}_proj.weight": w for n, w in weights.items()}
    cases.add("swiglu", lambda x, **p: swiglu(p, x), x=draw(2, 3, 4), **weights)


def gru(cases):
    layer = torch.nn.GRU(4, 5)

    def run(x, hidden, input, recurrent, bias, recurrent_bias):
        variables = {
            "weight_ih_l0": input.t(),
            "weight_hh_l0": recurrent.t(),
            "bias_ih_l0": bias,
            # The other biases of this vector are added to those of `bias`.
            "bias_hh_l0": torch.cat([torch.zeros(10), recurrent_bias]),
        }
        every, last = functional_call(layer, variables, (x, hidden[None]))
        return every, last[0]

    cases.add(
        "gru",
        run,
        x=draw(7, 3, 4),
        hidden=draw(3, 5),
        input=draw(4, 15),
        recurrent=draw(5, 15),
        bias=draw(15),
        recurrent_bias=draw(5),
    )


def rotate(x, positions, theta, factor=1.0, neighbours=False):
    """Rotates pairs by complex multiplication."""
    half = x.shape[-1] // 2
    if neighbours:
        points = torch.view_as_complex(x.unflatten(-1, (half, 2)).contiguous())
    else:
        points = torch.complex(x[..., :half], x[..., half:])
    angles = positions[..., :, None, None] * theta
    turned = points * torch.polar(torch.full_like(angles, factor), angles)
    if neighbours:
        return torch.view_as_real(turned).flatten(-2)
    return torch.cat([turned.real, turned.imag], -1)


def frequencies(width, base):
    return base ** (-torch.arange(0, width, 2) / width)


def scaled(kind, width, base, trained, **parameters):
    """The frequencies and the factor of transformers, which computes them in f32."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=width,
        num_attention_heads=1,
        max_position_embeddings=trained,
        rope_parameters=dict(rope_type=kind, rope_theta=base, **parameters),
    )
    torch.set_default_dtype(torch.float32)
    theta, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    torch.set_default_dtype(torch.float64)
    return theta.double(), factor


def rotary(cases):
    x = draw(2, 5, 3, 8)
    positions = torch.arange(5) + torch.tensor([[3], [100]])
    theta = frequencies(8, 500.0)
    cases.add("rotary", lambda x, at: rotate(x, at, theta), x=x, at=torch.arange(5))
    cases.add(
        "rotary_neighbours",
        lambda x, at: rotate(x, at, theta, neighbours=True),
        x=x,
        at=positions,
    )
    cases.add("rotary_linear", lambda x, at: rotate(x, at, theta / 4), x=x, at=positions)
    ntk = frequencies(8, 500.0 * 4.0 ** (8 / 6))
    cases.add("rotary_ntk", lambda x, at: rotate(x, at, ntk), x=x, at=positions)
    # Wide heads, so that pairs fall into all ranges of the scalings.
    x, positions = draw(1, 3, 1, 64), torch.tensor([1, 2, 5])
    for name, kind, parameters in (
        ("yarn", "yarn", dict(factor=4.0, original_max_position_embeddings=2048)),
        (
            "llama3",
            "llama3",
            dict(
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=8192,
            ),
        ),
    ):
        base = 10000.0 if kind == "yarn" else 500000.0
        scaled_theta, factor = scaled(kind, 64, base, 8192, **parameters)
        kept = scaled_theta / frequencies(64, base)
        between = ((kept < 0.99) & (kept > 1.01 / parameters["factor"])).sum()
        assert between >= 3 and (kept > 0.99).any() and between < 29, kept
        cases.add(
            f"rotary_{name}",
            lambda x, at: rotate(x, at, scaled_theta, factor),
            x=x,
            at=positions,
        )


def cross_attention(cases):
    width, memory_width, heads = 8, 6, 2
    layer = torch.nn.MultiheadAttention(
        width, heads, kdim=memory_width, vdim=memory_width, batch_first=True
    )
    valid = torch.arange(5)[None, :] < torch.tensor([5, 2, 3])[:, None]
    variables = {}
    for name, inputs in (("q", width), ("k", memory_width), ("v", memory_width), ("o", width)):
        variables[f"{name}_proj.weight"] = draw(inputs, width, scale=0.5)
        variables[f"{name}_proj.bias"] = draw(width, scale=0.5)

    def run(x, memory, valid=None, **p):
        weights = {f"{n}_proj_weight": p[f"{n}_proj.weight"].t() for n in ("q", "k", "v")}
        weights |= {
            "in_proj_bias": torch.cat([p[f"{n}_proj.bias"] for n in ("q", "k", "v")]),
            "out_proj.weight": p["o_proj.weight"].t(),
            "out_proj.bias": p["o_proj.bias"],
        }
        padding = None if valid is None else ~valid
        options = dict(key_padding_mask=padding, need_weights=False)
        return functional_call(layer, weights, (x, memory, memory), options)[0]

    x, memory = draw(3, 4, width), draw(3, 5, memory_width)
    inputs = dict(x=x, memory=memory, **variables)
    # A bias of keys changes no attention weight, so its derivative is rounding.
    options = dict(constants=("k_proj.bias",))
    cases.add("cross_attention", run, **options, **inputs)
    cases.add("cross_attention_valid", run, valid=valid, **options, **inputs)


def grouped_query_attention(cases):
    width, heads, shared = 16, 4, 2
    theta = frequencies(4, 10000.0)
    variables = {
        "q_proj.weight": draw(width, width, scale=0.5),
        "k_proj.weight": draw(width, 8, scale=0.5),
        "v_proj.weight": draw(width, 8, scale=0.5),
        "o_proj.weight": draw(width, width, scale=0.5),
    }

    def run(x, **p):
        q, k, v = (
            (x @ p[f"{n}_proj.weight"]).unflatten(-1, (count, 4))
            for n, count in (("q", heads), ("k", shared), ("v", shared))
        )
        at = torch.arange(x.shape[1])
        q, k = rotate(q, at, theta), rotate(k, at, theta)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return mixed.transpose(1, 2).flatten(2) @ p["o_proj.weight"]

    cases.add("grouped_query_attention", run, x=draw(2, 6, width), **variables)


def mixture_of_experts(cases):
    """Each token in turn, as the papers' pseudocode."""

    def run(x, router, gate_proj, up_proj, down_proj, top_k, capacity):
        experts = router.shape[1]
        p = torch.softmax(x @ router, -1)
        gates, chosen = p.topk(top_k)
        if top_k > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        results, dropped = [], 0
        for example in range(x.shape[0]):
            sums, load = [0.0 * t for t in x[example]], [0] * experts
            for choice in range(top_k):
                for token, t in enumerate(x[example]):
                    expert = chosen[example, token, choice].item()
                    load[expert] += 1
                    if load[expert] > capacity:
                        dropped += 1
                        continue
                    inner = F.silu(t @ gate_proj[expert]) * (t @ up_proj[expert])
                    sums[token] = (
                        sums[token] + gates[example, token, choice] * (inner @ down_proj[expert])
                    )
            results.append(torch.stack(sums))
        fraction = F.one_hot(chosen[..., 0], experts).double().mean((0, 1))
        loss = experts * (fraction * p.mean((0, 1))).sum()
        assert 0 < dropped < x.shape[0] * x.shape[1] * top_k / 2, dropped
        return torch.stack(results), loss

    tokens, width, inner, experts = 6, 4, 5, 3
    for top_k, factor in ((1, 1.0), (2, 0.75)):
        capacity = math.ceil(top_k * tokens / experts * factor)
        cases.add(
            f"mixture_of_experts_{top_k}",
            lambda **inputs: run(top_k=top_k, capacity=capacity, **inputs),
            x=draw(2, tokens, width),
            router=draw(width, experts),
            gate_proj=draw(experts, width, inner),
            up_proj=draw(experts, width, inner),
            down_proj=draw(experts, inner, width),
        )


def main():
    torch.set_default_dtype(torch.float64)
    cases = Cases()
    for n, group in enumerate(
        (
            norms,
            transposed_convolution,
            feed_forward,
            gru,
            rotary,
            cross_attention,
            grouped_query_attention,
            mixture_of_experts,
        )
    ):
        torch.manual_seed(n)
        group(cases)
    cases.write("layers.npz")


if __name__ == "__main__":
    main()
