"""GPT-2's training step in PyTorch and JAX, for `gpu.py`: the network, loss and optimiser of `wengert::models::Gpt` trained by AdamW.

Parameters are a list of arrays in the order of `shapes`; both sides draw the same numbers, as `bench/src/data.rs` and `bench/src/case/transformer.rs`
do, so that losses can be compared step by step.
"""

import math

RATE, FIRST, SECOND, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01
STEPS = 3  # whose losses are compared
SEED = 0x5EED
STEP = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


# ---------------------------------------------------------------------------------------------------------------- data


def shapes(network):
    """Names of parameters: their shapes, and the bounds between which they are drawn."""
    c, layers = network["width"], network["layers"]
    even = 0.02 * math.sqrt(3)
    added = even / math.sqrt(2 * layers)
    norm = lambda name: {f"{name}.weight": ([c], (0.9, 1.1)), f"{name}.bias": ([c], (-0.02, 0.02))}
    linear = lambda name, n, m, bound: {f"{name}.weight": ([n, m], (-bound, bound)), f"{name}.bias": ([m], (-0.02, 0.02))}
    found = {"wte.weight": ([network["vocabulary"], c], (-even, even)), "wpe.weight": ([network["steps"], c], (-even, even))}
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


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def words(name, count):
    """The first words of a name's stream: SplitMix64, all at once."""
    import numpy as np

    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = ((number ^ byte) * 0x00000100000001B3) & MASK
    begin = mix((SEED + STEP) & MASK) ^ mix(number)
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64)
        z *= np.uint64(STEP)
        z += np.uint64(begin)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z ^= z >> np.uint64(shift)
            z *= np.uint64(factor)
        return z ^ (z >> np.uint64(31))


def drawn(network):
    """Parameters, the same numbers that `wengert-bench` draws."""
    import numpy as np

    for name, (shape, (low, high)) in shapes(network).items():
        even = (words(f"model.{name}", math.prod(shape)) >> np.uint64(40)) / float(1 << 24)
        yield (low + (high - low) * even).astype(np.float32).reshape(shape)


def fresh(network):
    """Parameters of the same kind, drawn as fast as can be."""
    import numpy as np

    generator = np.random.default_rng(1)
    for shape, (low, high) in shapes(network).values():
        even = generator.random(shape, dtype=np.float32)
        even *= high - low
        even += low
        yield even


def tokens(network):
    """Tokens, and those that follow them."""
    import numpy as np

    shape, bound = (network["batch"], network["steps"]), network["vocabulary"]
    count = shape[0] * shape[1]
    found = []
    for name in ("x", "y"):
        # Words that would be drawn once too often are left out; among so many spare ones there are enough.
        some = words(name, count + 64)
        some = some[some >= np.uint64((1 << 64) % bound)][:count]
        found.append((some % np.uint64(bound)).astype(np.int32).reshape(shape))
    return found


# --------------------------------------------------------------------------------------------------------------- torch


def torch_loss(torch, network):
    """The mean cross-entropy as a function of parameters in the order of `shapes`, tokens and targets."""
    functional = torch.nn.functional
    heads, c = network["heads"], network["width"]

    def attention(x, weight, bias, out, out_bias):
        b, t, _ = x.shape
        parts = torch.addmm(bias, x.view(-1, c), weight).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return torch.addmm(out_bias, mixed.transpose(1, 2).reshape(-1, c), out).view(b, t, c)

    def loss(parameters, x, y):
        wte, wpe, *rest = parameters
        *rest, gamma_f, beta_f = rest
        h = functional.embedding(x, wte) + wpe
        b, t, _ = h.shape
        for n in range(0, len(rest), 12):
            gamma, beta, qkv, qkv_b, proj, proj_b, gamma_2, beta_2, fc, fc_b, back, back_b = rest[n : n + 12]
            h = h + attention(functional.layer_norm(h, (c,), gamma, beta), qkv, qkv_b, proj, proj_b)
            inner = functional.layer_norm(h, (c,), gamma_2, beta_2).view(-1, c)
            inner = functional.gelu(torch.addmm(fc_b, inner, fc), approximate="tanh")
            h = h + torch.addmm(back_b, inner, back).view(b, t, c)
        h = functional.layer_norm(h, (c,), gamma_f, beta_f)
        return functional.cross_entropy(h.view(-1, c) @ wte.t(), y.flatten())

    return loss


def torch_step(torch, loss, parameters, x, y, **settings):
    """A step as a function of nothing that gives the loss."""
    leaves = [p.requires_grad_() for p in parameters]
    optimizer = torch.optim.AdamW(leaves, lr=RATE, betas=(FIRST, SECOND), eps=EPSILON, weight_decay=DECAY, **settings)

    def run():
        optimizer.zero_grad(set_to_none=True)
        value = loss(leaves, x, y)
        value.backward()
        optimizer.step()
        return (value.detach(),)

    return run


# ----------------------------------------------------------------------------------------------------------------- jax


def jax_step(jax, network, fused):
    """A step from a state (parameters, two moments, count), tokens and targets to the next state and the loss. `fused`: attention is
    `jax.nn.dot_product_attention`, not einsums."""
    jnp = jax.numpy
    heads, c = network["heads"], network["width"]

    def norm(x, gamma, beta):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    def attention(q, k, v):
        if fused:
            return jax.nn.dot_product_attention(q, k, v, is_causal=True)
        t = q.shape[1]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(c // heads)
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    def loss(parameters, x, y):
        wte, wpe, *rest = parameters
        *rest, gamma_f, beta_f = rest
        b, t = x.shape
        h = wte[x] + wpe
        for n in range(0, len(rest), 12):
            gamma, beta, qkv, qkv_b, proj, proj_b, gamma_2, beta_2, fc, fc_b, back, back_b = rest[n : n + 12]
            q, k, v = jnp.split(norm(h, gamma, beta) @ qkv + qkv_b, 3, -1)
            mixed = attention(*(a.reshape(b, t, heads, c // heads) for a in (q, k, v)))
            h = h + mixed.reshape(b, t, c) @ proj + proj_b
            h = h + jax.nn.gelu(norm(h, gamma_2, beta_2) @ fc + fc_b, approximate=True) @ back + back_b
        logits = norm(h, gamma_f, beta_f) @ wte.T
        chosen = jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, -1) - chosen).mean()

    def step(state, x, y):
        parameters, m, v, count = state
        value, gradient = jax.value_and_grad(loss)(parameters, x, y)
        count = count + 1
        m = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, m, gradient)
        v = jax.tree.map(lambda v, g: SECOND * v + (1 - SECOND) * g * g, v, gradient)
        first, second = 1 - FIRST**count, 1 - SECOND**count
        moved = lambda p, m, v: p * (1 - RATE * DECAY) - RATE * (m / first) / (jnp.sqrt(v / second) + EPSILON)
        return (jax.tree.map(moved, parameters, m, v), m, v, count), value

    return step
