"""Decoding for `measure.py`: a step of the Llama of `bench/src/case/decoding.rs` in PyTorch and
JAX, and in NumPy with f64 as the reference.

Parameters are in the order of `shapes`: the embedding, nine per block, the last norm and the last
layer. Caches are pairs of keys and values, `[1, S, K, H]`, one for each block. All positions but
the last are filled, and the step computes the last one.
"""

import math

import drawing

BASE, EPSILON = 1e4, 1e-5
OF_BLOCK = 9


class Decoder:
    def __init__(self, case):
        self.network = network = case["kind"]["network"]
        self.heads, self.shared = network["heads"], network["key_value_heads"]
        self.extent = network["width"] // self.heads
        self.positions = network["positions"]
        self.rounded = drawing.to_bf16 if case["dtype"] == "bf16" else lambda numbers: numbers
        c, wide, keys = network["width"], network["intermediate"], self.shared * self.extent
        even = 0.02 * math.sqrt(3)
        matrix = lambda *shape: (list(shape), (-even, even))
        norm = ([c], (0.9, 1.1))
        self.shapes = {"model.embed_tokens.weight": matrix(network["vocabulary"], c)}
        for layer in range(network["layers"]):
            block = {
                "self_attn.q_proj": matrix(c, c),
                "self_attn.k_proj": matrix(c, keys),
                "self_attn.v_proj": matrix(c, keys),
                "self_attn.o_proj": matrix(c, c),
                "mlp.gate_proj": matrix(c, wide),
                "mlp.up_proj": matrix(c, wide),
                "mlp.down_proj": matrix(wide, c),
                "input_layernorm": norm,
                "post_attention_layernorm": norm,
            }
            at = f"model.layers.{layer}"
            self.shapes.update({f"{at}.{name}.weight": of for name, of in block.items()})
        self.shapes["model.norm.weight"] = norm
        self.shapes["lm_head.weight"] = matrix(c, network["vocabulary"])

    def token(self):
        """The token, `[1, 1]`."""
        return drawing.labels("token", (1, 1), self.network["vocabulary"])

    def parameters(self):
        """Yields the parameters, as f32 numbers of the case's dtype."""
        return map(self.rounded, drawing.parameters(self.shapes))

    def caches(self):
        """Yields the keys and values of each block, likewise."""
        shape = (1, self.positions, self.shared, self.extent)
        for layer in range(self.network["layers"]):
            names = (f"caches.{layer}.{of}" for of in ("keys", "values"))
            yield tuple(self.rounded(drawing.uniform(name, shape, -1, 1)) for name in names)

    def frequencies(self):
        """The rotary embedding's frequencies, in f32 like its angles."""
        import numpy as np

        half = np.arange(self.extent // 2)
        return (BASE ** (-2.0 * half / self.extent)).astype(np.float32)

    def plain(self):
        """The logits by NumPy in f64."""
        import numpy as np

        wide = lambda numbers: numbers.astype(np.float64)

        def norm(x, gamma):
            return x / np.sqrt((x * x).mean() + EPSILON) * gamma

        angles = (np.float32(self.positions - 1) * self.frequencies()).astype(np.float64)
        cosine, sine = np.cos(angles), np.sin(angles)

        def rotated(x):
            a, b = np.split(x.reshape(-1, self.extent), 2, -1)
            return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

        embedding, *blocks, last, head = map(wide, self.parameters())
        h = embedding[self.token()[0, 0]]
        for n, (keys, values) in enumerate(self.caches()):
            q, k, v, o, gate, up, down, before, between = blocks[n * OF_BLOCK :][:OF_BLOCK]
            x = norm(h, before)
            keys, values = wide(keys[0]), wide(values[0])
            keys[-1], values[-1] = rotated(x @ k), (x @ v).reshape(self.shared, self.extent)
            queries = rotated(x @ q).reshape(self.shared, -1, self.extent)
            scores = np.einsum("kgh,skh->kgs", queries, keys) / math.sqrt(self.extent)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            h = h + np.einsum("kgs,skh->kgh", shares, values).reshape(-1) @ o
            x = norm(h, between)
            inner = x @ gate
            h = h + (inner / (1 + np.exp(-inner)) * (x @ up)) @ down
        return norm(h, last) @ head

    def torch_ways(self, torch, device):
        """Forms of the step by name. A step maps parameters, caches, a token and a position to
        logits, and writes into the caches. The layouts are PyTorch's: matrices of layers are
        `[outputs, inputs]`, caches `[1, K, S, H]`."""
        functional = torch.nn.functional
        heads, shared, extent = self.heads, self.shared, self.extent
        theta = torch.from_numpy(self.frequencies()).to(device)
        places = torch.arange(self.positions, device=device)

        def norm(x, gamma):
            return functional.rms_norm(x, x.shape[-1:], gamma, EPSILON)

        def rotated(x, cosine, sine):
            a, b = x.float().chunk(2, -1)
            return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)

        def step(attend):
            def function(parameters, caches, token, position):
                embedding, *blocks, last, head = parameters
                angles = position * theta
                turn = (angles.cos(), angles.sin())
                seen = (places <= position)[None, None, None]
                h = functional.embedding(token, embedding)
                for n, (keys, values) in enumerate(caches):
                    q, k, v, o, gate, up, down, before, between = blocks[n * OF_BLOCK :][:OF_BLOCK]
                    x = norm(h, before)
                    queries, new, value = (
                        functional.linear(x, w).view(1, 1, count, extent).transpose(1, 2)
                        for w, count in ((q, heads), (k, shared), (v, shared))
                    )
                    keys.index_copy_(2, position, rotated(new, *turn))
                    values.index_copy_(2, position, value)
                    mixed = attend(rotated(queries, *turn), keys, values, seen)
                    h = h + functional.linear(mixed.reshape(1, 1, heads * extent), o)
                    x = norm(h, between)
                    wide = functional.silu(functional.linear(x, gate)) * functional.linear(x, up)
                    h = h + functional.linear(wide, down)
                return functional.linear(norm(h, last), head)

            return function

        def shares_heads(q, keys, values, seen):
            return functional.scaled_dot_product_attention(
                q, keys, values, attn_mask=seen, enable_gqa=True
            )

        def groups_are_rows(q, keys, values, seen):
            # There is one position, so the heads of a group can stand for positions.
            q = q.view(1, shared, heads // shared, extent)
            return functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)

        return {"heads": step(shares_heads), "groups": step(groups_are_rows)}

    def jax_ways(self, jax):
        """Forms of the step by name. A step maps caches, parameters, a token and a position to
        the next caches and logits."""
        jnp, heads, shared, extent = jax.numpy, self.heads, self.shared, self.extent
        theta, update = self.frequencies(), jax.lax.dynamic_update_slice_in_dim

        def norm(x, gamma):
            wide = x.astype(jnp.float32)
            scale = jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPSILON)
            return (wide * scale).astype(x.dtype) * gamma

        def rotated(x, cosine, sine):
            a, b = jnp.split(x.astype(jnp.float32), 2, -1)
            turned = jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)
            return turned.astype(x.dtype)

        def step(attend):
            def function(caches, parameters, token, position):
                embedding, *blocks, last, head = parameters
                angles = position.astype(jnp.float32) * theta
                turn = (jnp.cos(angles), jnp.sin(angles))
                seen = jnp.arange(self.positions) <= position
                h, after = embedding[token], []
                for n, (keys, values) in enumerate(caches):
                    q, k, v, o, gate, up, down, before, between = blocks[n * OF_BLOCK :][:OF_BLOCK]
                    x = norm(h, before)
                    queries = rotated((x @ q).reshape(1, 1, heads, extent), *turn)
                    new = rotated((x @ k).reshape(1, 1, shared, extent), *turn)
                    keys = update(keys, new, position, 1)
                    values = update(values, (x @ v).reshape(1, 1, shared, extent), position, 1)
                    after.append((keys, values))
                    h = h + attend(queries, keys, values, seen).reshape(1, 1, heads * extent) @ o
                    x = norm(h, between)
                    h = h + (jax.nn.silu(x @ gate) * (x @ up)) @ down
                return after, norm(h, last) @ head

            return function

        def einsum(q, keys, values, seen):
            q = q.reshape(1, 1, shared, heads // shared, extent)
            scores = jnp.einsum(
                "bqkgh,bskh->bkgqs", q, keys, preferred_element_type=jnp.float32
            ) / math.sqrt(extent)
            shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1).astype(values.dtype)
            return jnp.einsum("bkgqs,bskh->bqkgh", shares, values)

        def fused(q, keys, values, seen):
            return jax.nn.dot_product_attention(q, keys, values, mask=seen[None, None, None])

        return {"einsum": step(einsum), "fused": step(fused)}
