"""Inference for `measure.py`: the networks of `bench/src/case/inference.rs` in PyTorch and JAX, and
in NumPy with f64 as the reference.

A network (`of`) has `shapes` (names of parameters, with their shapes and bounds), `inputs()` (by
name), and `torch_function(torch)`, `jax_function(jax, fused)` and `plain`: functions of the
parameters, in the order of `shapes`, and the inputs.
"""

import math

import drawing
import steps
import transformer


def of(case):
    network = case["kind"]["network"]
    return {"mlp": Mlp, "gpt": Gpt, "bert": Bert}[network["model"]](network)


def digest(values):
    """Three numbers of a result, as in `bench/src/parity.rs`."""
    import numpy as np

    flat = np.asarray(values, np.float64).ravel()
    found = []
    for third in range(3):
        part = flat[third * flat.size // 3 : (third + 1) * flat.size // 3]
        found.append(
            float((np.arange(1, part.size + 1) * part * part).sum() / max(part.size, 1) ** 2)
        )
    return found


# -------------------------------------------------------------------------------------------- plain


def norm(x, gamma, beta, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / ((centred * centred).mean(-1, keepdims=True) + epsilon) ** 0.5 * gamma + beta


def attend(q, k, v, allowed):
    """Attention on `[B, H, T, D]` each; `allowed` is true for the keys that a query attends to."""
    import numpy as np

    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    shares = np.exp(np.where(allowed, scores, -np.inf))
    return shares / shares.sum(-1, keepdims=True) @ v


def heads_of(x, heads):
    b, t, c = x.shape
    return x.reshape(b, t, heads, c // heads).swapaxes(1, 2)


def joined(x):
    b, h, t, d = x.shape
    return x.swapaxes(1, 2).reshape(b, t, h * d)


# ----------------------------------------------------------------------------------------- networks


class Mlp:
    def __init__(self, network):
        self.network, self.shapes = network, steps.layers(network["widths"])

    def inputs(self):
        return {"x": drawing.uniform("x", (self.network["batch"], self.network["widths"][0]), 0, 1)}

    def plain(self, parameters, x):
        for n in range(0, len(parameters), 2):
            x = (x.clip(0) if n else x) @ parameters[n] + parameters[n + 1]
        return x

    def torch_function(self, torch):
        def function(parameters, x):
            for n in range(0, len(parameters), 2):
                x = torch.addmm(parameters[n + 1], torch.relu(x) if n else x, parameters[n])
            return x

        return function

    def jax_function(self, jax, fused):
        def function(parameters, x):
            for n in range(0, len(parameters), 2):
                x = (jax.nn.relu(x) if n else x) @ parameters[n] + parameters[n + 1]
            return x

        return function


class Gpt:
    def __init__(self, network):
        self.network = network["network"]
        self.shapes = transformer.shapes(self.network)

    def inputs(self):
        return {"x": transformer.tokens(self.network)[0]}

    def plain(self, parameters, x):
        import numpy as np

        wte, wpe, *rest = parameters
        *rest, gamma_f, beta_f = rest
        causal = np.tril(np.ones((x.shape[1], x.shape[1]), bool))
        h = wte[x] + wpe
        for n in range(0, len(rest), 12):
            gamma, beta, qkv, qkv_b, proj, proj_b, gamma_2, beta_2, fc, fc_b, back, back_b = rest[
                n : n + 12
            ]
            parts = np.split(norm(h, gamma, beta, 1e-5) @ qkv + qkv_b, 3, -1)
            h = (
                h
                + joined(attend(*(heads_of(p, self.network["heads"]) for p in parts), causal))
                @ proj
                + proj_b
            )
            wide = norm(h, gamma_2, beta_2, 1e-5) @ fc + fc_b
            wide = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
            h = h + wide @ back + back_b
        return norm(h, gamma_f, beta_f, 1e-5) @ wte.T

    def torch_function(self, torch):
        return transformer.torch_logits(torch, self.network)

    def jax_function(self, jax, fused):
        return transformer.jax_logits(jax, self.network, fused)


class Bert:
    def __init__(self, network):
        self.network = network = network["network"]
        c, wide = network["width"], network["intermediate"]
        even = 0.02 * math.sqrt(3)
        self.shapes = {}
        for name, rows in (
            ("word", network["vocabulary"]),
            ("position", network["positions"]),
            ("token_type", 2),
        ):
            self.shapes[f"embeddings.{name}_embeddings.weight"] = ([rows, c], (-even, even))

        def pair(name, shape, low, high):
            self.shapes[f"{name}.weight"] = (shape, (low, high))
            self.shapes[f"{name}.bias"] = (shape[-1:], (-0.02, 0.02))

        pair("embeddings.LayerNorm", [c], 0.9, 1.1)
        for layer in range(network["layers"]):
            at = f"encoder.layer.{layer}"
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                pair(f"{at}.attention.{part}", [c, c], -even, even)
            pair(f"{at}.attention.output.LayerNorm", [c], 0.9, 1.1)
            pair(f"{at}.intermediate.dense", [c, wide], -even, even)
            pair(f"{at}.output.dense", [wide, c], -even, even)
            pair(f"{at}.output.LayerNorm", [c], 0.9, 1.1)

    def inputs(self):
        import numpy as np

        n = self.network
        x = drawing.labels("x", (n["batch"], n["steps"]), n["vocabulary"])
        there = np.arange(n["steps"]) < n["steps"] - n["steps"] // 16
        return {"x": x, "mask": np.broadcast_to(there, x.shape).copy()}

    def plain(self, parameters, x, mask):
        import numpy as np

        erf = np.vectorize(math.erf, otypes=[np.float64])
        words, positions, types, gamma, beta, *rest = parameters
        h = norm(words[x] + positions[: x.shape[1]] + types[0], gamma, beta, 1e-12)
        for n in range(0, len(rest), 16):
            (
                q, q_b, k, k_b, v, v_b, proj, proj_b,
                gamma, beta, fc, fc_b, back, back_b, gamma_2, beta_2,
            ) = rest[n : n + 16]
            parts = (
                heads_of(h @ w + b, self.network["heads"])
                for w, b in ((q, q_b), (k, k_b), (v, v_b))
            )
            h = norm(
                h + joined(attend(*parts, mask[:, None, None])) @ proj + proj_b, gamma, beta, 1e-12
            )
            wide = h @ fc + fc_b
            wide = 0.5 * wide * (1 + erf(wide / math.sqrt(2)))
            h = norm(h + wide @ back + back_b, gamma_2, beta_2, 1e-12)
        total = (h * mask[..., None]).sum(1)
        return total / (total * total).sum(-1, keepdims=True) ** 0.5

    def torch_function(self, torch):
        functional = torch.nn.functional
        heads, c = self.network["heads"], self.network["width"]

        def function(parameters, x, mask):
            words, positions, types, gamma, beta, *rest = parameters
            b, t = x.shape
            h = functional.layer_norm(
                functional.embedding(x, words) + positions[:t] + types[0], (c,), gamma, beta, 1e-12
            )
            allowed = mask[:, None, None]
            for n in range(0, len(rest), 16):
                (
                    q, q_b, k, k_b, v, v_b, proj, proj_b,
                    gamma, beta, fc, fc_b, back, back_b, gamma_2, beta_2,
                ) = rest[n : n + 16]
                flat = h.view(-1, c)
                parts = (
                    torch.addmm(o, flat, w).view(b, t, heads, c // heads).transpose(1, 2)
                    for w, o in ((q, q_b), (k, k_b), (v, v_b))
                )
                mixed = functional.scaled_dot_product_attention(*parts, attn_mask=allowed)
                mixed = torch.addmm(proj_b, mixed.transpose(1, 2).reshape(-1, c), proj).view(
                    b, t, c
                )
                h = functional.layer_norm(h + mixed, (c,), gamma, beta, 1e-12)
                wide = functional.gelu(torch.addmm(fc_b, h.view(-1, c), fc))
                h = functional.layer_norm(
                    h + torch.addmm(back_b, wide, back).view(b, t, c), (c,), gamma_2, beta_2, 1e-12
                )
            total = torch.where(mask[..., None], h, 0.0).sum(1)
            return total / (total * total).sum(-1, keepdim=True).sqrt()

        return function

    def jax_function(self, jax, fused):
        jnp = jax.numpy
        heads, c = self.network["heads"], self.network["width"]

        def layer_norm(x, gamma, beta):
            return transformer.jax_norm(jax, x, gamma, beta, 1e-12)

        def attention(q, k, v, mask):
            if fused:
                return jax.nn.dot_product_attention(q, k, v, mask=mask[:, None, None])
            scores = transformer.jax_wide(jax, jnp.einsum("bqhd,bkhd->bhqk", q, k))
            scores = jnp.where(mask[:, None, None], scores / math.sqrt(c // heads), -jnp.inf)
            return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(v.dtype), v)

        def function(parameters, x, mask):
            words, positions, types, gamma, beta, *rest = parameters
            b, t = x.shape
            h = layer_norm(words[x] + positions[:t] + types[0], gamma, beta)
            for n in range(0, len(rest), 16):
                (
                    q, q_b, k, k_b, v, v_b, proj, proj_b,
                    gamma, beta, fc, fc_b, back, back_b, gamma_2, beta_2,
                ) = rest[n : n + 16]
                parts = (
                    (h @ w + o).reshape(b, t, heads, c // heads)
                    for w, o in ((q, q_b), (k, k_b), (v, v_b))
                )
                h = layer_norm(
                    h + attention(*parts, mask).reshape(b, t, c) @ proj + proj_b, gamma, beta
                )
                wide = jax.nn.gelu(h @ fc + fc_b, approximate=False)
                h = layer_norm(h + wide @ back + back_b, gamma_2, beta_2)
            total = jnp.where(mask[..., None], transformer.jax_wide(jax, h), 0.0).sum(1)
            return total / jnp.sqrt((total * total).sum(-1, keepdims=True))

        return function
