"""GPT-2 in PyTorch and JAX, for `measure.py`: the network and loss of `wengert::models::Gpt`.

Parameters are a list of arrays in the order of `shapes`. All contenders draw the same numbers
(`drawing.py`), so their losses can be compared step by step.
"""

import math

import drawing


# --------------------------------------------------------------------------------------------- data


def shapes(network):
    """Names of parameters, with their shapes and the bounds of their numbers."""
    c, layers = network["width"], network["layers"]
    even = 0.02 * math.sqrt(3)
    added = even / math.sqrt(2 * layers)
    norm = lambda name: {f"{name}.weight": ([c], (0.9, 1.1)), f"{name}.bias": ([c], (-0.02, 0.02))}
    linear = lambda name, n, m, bound: {
        f"{name}.weight": ([n, m], (-bound, bound)),
        f"{name}.bias": ([m], (-0.02, 0.02)),
    }
    found = {
        "wte.weight": ([network["vocabulary"], c], (-even, even)),
        "wpe.weight": ([network["steps"], c], (-even, even)),
    }
    for layer in range(layers):
        at = f"h.{layer}"
        found.update(norm(f"{at}.ln_1"))
        found.update(linear(f"{at}.attn.c_attn", c, 3 * c, even))
        found.update(linear(f"{at}.attn.c_proj", c, c, added))
        found.update(norm(f"{at}.ln_2"))
        found.update(linear(f"{at}.mlp.c_fc", c, 4 * c, even))
        found.update(linear(f"{at}.mlp.c_proj", 4 * c, c, added))
    found.update(norm("ln_f"))
    return found


def tokens(network):
    """Tokens, and the next tokens."""
    return [
        drawing.labels(name, (network["batch"], network["steps"]), network["vocabulary"])
        for name in ("x", "y")
    ]


# -------------------------------------------------------------------------------------------- torch


def torch_logits(torch, network):
    """Logits, one row per token, as a function of parameters in the order of `shapes` and
    tokens."""
    functional = torch.nn.functional
    heads, c = network["heads"], network["width"]

    def attention(x, weight, bias, out, out_bias):
        b, t, _ = x.shape
        parts = (
            torch.addmm(bias, x.view(-1, c), weight)
            .view(b, t, 3, heads, c // heads)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return torch.addmm(out_bias, mixed.transpose(1, 2).reshape(-1, c), out).view(b, t, c)

    def logits(parameters, x):
        wte, wpe, *rest = parameters
        *rest, gamma_f, beta_f = rest
        h = functional.embedding(x, wte) + wpe
        b, t, _ = h.shape
        for n in range(0, len(rest), 12):
            gamma, beta, qkv, qkv_b, proj, proj_b, gamma_2, beta_2, fc, fc_b, back, back_b = rest[
                n : n + 12
            ]
            h = h + attention(functional.layer_norm(h, (c,), gamma, beta), qkv, qkv_b, proj, proj_b)
            inner = functional.layer_norm(h, (c,), gamma_2, beta_2).view(-1, c)
            inner = functional.gelu(torch.addmm(fc_b, inner, fc), approximate="tanh")
            h = h + torch.addmm(back_b, inner, back).view(b, t, c)
        h = functional.layer_norm(h, (c,), gamma_f, beta_f)
        return h.view(-1, c) @ wte.t()

    return logits


def torch_loss(torch, network):
    """The mean cross-entropy as a function of parameters in the order of `shapes`, tokens and
    targets."""
    logits = torch_logits(torch, network)
    return lambda parameters, x, y: torch.nn.functional.cross_entropy(
        logits(parameters, x), y.flatten()
    )


# ---------------------------------------------------------------------------------------------- jax


def jax_wide(jax, x):
    """x in f32, if it is bf16."""
    return x.astype(jax.numpy.promote_types(x.dtype, jax.numpy.float32))


def jax_norm(jax, x, gamma, beta, epsilon):
    """Layer norm, whose statistics are at least f32."""
    wide = jax_wide(jax, x)
    centred = wide - wide.mean(-1, keepdims=True)
    deviation = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return (centred * deviation * gamma + beta).astype(x.dtype)


def jax_logits(jax, network, fused):
    """Logits as a function of parameters and tokens. Attention is `jax.nn.dot_product_attention` if
    `fused`, otherwise einsums."""
    jnp = jax.numpy
    heads, c = network["heads"], network["width"]

    def norm(x, gamma, beta):
        return jax_norm(jax, x, gamma, beta, 1e-5)

    def attention(q, k, v):
        if fused:
            return jax.nn.dot_product_attention(q, k, v, is_causal=True)
        t = q.shape[1]
        scores = jax_wide(jax, jnp.einsum("bqhd,bkhd->bhqk", q, k)) / math.sqrt(c // heads)
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(v.dtype), v)

    def logits(parameters, x):
        wte, wpe, *rest = parameters
        *rest, gamma_f, beta_f = rest
        b, t = x.shape
        h = wte[x] + wpe
        for n in range(0, len(rest), 12):
            gamma, beta, qkv, qkv_b, proj, proj_b, gamma_2, beta_2, fc, fc_b, back, back_b = rest[
                n : n + 12
            ]
            q, k, v = jnp.split(norm(h, gamma, beta) @ qkv + qkv_b, 3, -1)
            mixed = attention(*(a.reshape(b, t, heads, c // heads) for a in (q, k, v)))
            h = h + mixed.reshape(b, t, c) @ proj + proj_b
            h = (
                h
                + jax.nn.gelu(norm(h, gamma_2, beta_2) @ fc + fc_b, approximate=True) @ back
                + back_b
            )
        return norm(h, gamma_f, beta_f) @ wte.T

    return logits


def jax_loss(jax, network, fused):
    """The mean cross-entropy as a function of parameters, tokens and targets."""
    logits, jnp = jax_logits(jax, network, fused), jax.numpy

    def loss(parameters, x, y):
        found = jax_wide(jax, logits(parameters, x))
        chosen = jnp.take_along_axis(found, y[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(found, -1) - chosen).mean()

    return loss
