"""Training steps for `measure.py`: the trained networks of `bench/src/case`, their losses in
PyTorch and JAX, and the optimisers.

A network (`of`) has `shapes` (names of parameters, with their shapes and bounds), `data()` (inputs
and targets), `decay` (of AdamW; 0 is Adam), `torch_losses(torch)` and `jax_losses(jax)`. The last
two return idiomatic variants of the loss by name. Each is a function of parameters in the order of
`shapes`, inputs and targets. A variant in PyTorch is a pair: the loss, and a function that converts
the parameters to PyTorch's layouts first. The networks of `convolutional_networks.py` are only
compiled, by JAX (`memory.py`).
"""

import math

import convolutional_networks
import drawing
import transformer

RATE, FIRST, SECOND, EPSILON = 1e-3, 0.9, 0.999, 1e-8
STEPS = 3  # number of steps whose losses are compared


def of(case):
    kinds = {
        "transformer": Transformer,
        "training": Mlp,
        "convolutional": Convnet,
        "recurrent": Recurrent,
    }
    kinds.update(unet=convolutional_networks.UNet, resnet=convolutional_networks.ResNet)
    kind = case["kind"]
    return kinds[kind["is"]](kind["network"]) if kind["is"] in kinds else None


def same(parameters):
    return parameters


def jax_cross_entropy(jax, logits, y):
    logits = transformer.jax_wide(jax, logits)
    chosen = jax.numpy.take_along_axis(logits, y[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def layers(widths):
    """Shapes and bounds of affine layers with relu in between."""
    found = {}
    for n, (wide, out) in enumerate(zip(widths, widths[1:])):
        bound = math.sqrt(6.0 / wide)
        found[f"layers.{n}.weight"] = ([wide, out], (-bound, bound))
        found[f"layers.{n}.bias"] = ([out], (-0.1, 0.1))
    return found


class Transformer:
    decay = 0.01

    def __init__(self, network):
        self.network, self.shapes = network, transformer.shapes(network)

    def data(self):
        return transformer.tokens(self.network)

    def torch_losses(self, torch):
        return {"": (transformer.torch_loss(torch, self.network), same)}

    def jax_losses(self, jax):
        return {
            name: transformer.jax_loss(jax, self.network, fused)
            for name, fused in (("einsum", False), ("fused", True))
        }


class Mlp:
    def __init__(self, network):
        self.network, self.shapes = network, layers(network["widths"])
        self.decay = 0.01 if network["algorithm"] == "adam_w" else 0.0

    def data(self):
        batch, widths = self.network["batch"], self.network["widths"]
        return drawing.uniform("x", (batch, widths[0]), 0, 1), drawing.labels(
            "y", (batch,), widths[-1]
        )

    def torch_losses(self, torch):
        def loss(parameters, x, y):
            for n in range(0, len(parameters), 2):
                x = torch.addmm(parameters[n + 1], torch.relu(x) if n else x, parameters[n])
            return torch.nn.functional.cross_entropy(x, y)

        return {"": (loss, same)}

    def jax_losses(self, jax):
        def loss(parameters, x, y):
            for n in range(0, len(parameters), 2):
                x = (jax.nn.relu(x) if n else x) @ parameters[n] + parameters[n + 1]
            return jax_cross_entropy(jax, x, y)

        return {"": loss}


class Convnet:
    decay = 0.0

    def __init__(self, network):
        self.network = network
        first, second = network["features"]
        shapes = {
            "conv1": [3, 3, network["channels"], first],
            "conv2": [3, 3, first, second],
            "fc1": [second * (network["extent"] // 4) ** 2, network["width"]],
            "fc2": [network["width"], network["classes"]],
        }
        self.shapes = {}
        for name, shape in shapes.items():
            bound = math.sqrt(6.0 * shape[-1] / math.prod(shape))
            self.shapes[f"{name}.weight"] = (shape, (-bound, bound))
            self.shapes[f"{name}.bias"] = (shape[-1:], (-0.1, 0.1))

    def data(self):
        batch, extent = self.network["batch"], self.network["extent"]
        shape = (batch, extent, extent, self.network["channels"])
        return drawing.uniform("x", shape, 0, 1), drawing.labels(
            "y", (batch,), self.network["classes"]
        )

    def torch_losses(self, torch):
        functional = torch.nn.functional
        quarter, second = self.network["extent"] // 4, self.network["features"][1]

        def turned(parameters):
            parameters = list(parameters)
            for n in (0, 2):
                parameters[n] = parameters[n].transpose(3, 2, 0, 1).copy()
            by_place = parameters[4].reshape(quarter, quarter, second, -1)
            parameters[4] = by_place.transpose(2, 0, 1, 3).reshape(parameters[4].shape).copy()
            return parameters

        def layout(of):
            def loss(parameters, x, y):
                x = x.permute(0, 3, 1, 2).contiguous(memory_format=of)
                for n in (0, 2):
                    x = functional.conv2d(x, parameters[n], parameters[n + 1], padding=1)
                    x = functional.max_pool2d(torch.relu(x), 2)
                hidden = torch.relu(torch.addmm(parameters[5], x.flatten(1), parameters[4]))
                return functional.cross_entropy(
                    torch.addmm(parameters[7], hidden, parameters[6]), y
                )

            return loss, turned

        return {
            "channels first": layout(torch.contiguous_format),
            "channels last": layout(torch.channels_last),
        }

    def jax_losses(self, jax):
        def loss(parameters, x, y):
            for n in (0, 2):
                x = jax.lax.conv_general_dilated(
                    x, parameters[n], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                x = jax.nn.relu(x + parameters[n + 1])
                x = jax.lax.reduce_window(
                    x, -math.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
                )
            hidden = jax.nn.relu(x.reshape(x.shape[0], -1) @ parameters[4] + parameters[5])
            return jax_cross_entropy(jax, hidden @ parameters[6] + parameters[7], y)

        return {"": loss}


class Recurrent:
    decay = 0.01

    def __init__(self, network):
        self.network = network
        width, bound = network["width"], 1.0 / math.sqrt(network["width"])
        shapes = {
            "lstm.input": [network["inputs"], 4 * width],
            "lstm.recurrent": [width, 4 * width],
            "lstm.bias": [4 * width],
            "out.weight": [width, network["classes"]],
            "out.bias": [network["classes"]],
        }
        self.shapes = {name: (shape, (-bound, bound)) for name, shape in shapes.items()}

    def data(self):
        n = self.network
        shape = (n["steps"], n["batch"])
        return drawing.uniform("x", (*shape, n["inputs"]), 0, 1), drawing.labels(
            "y", shape, n["classes"]
        )

    def torch_losses(self, torch):
        def turned(parameters):
            return [p.T.copy() if n < 2 else p for n, p in enumerate(parameters)]

        def loss(parameters, x, y):
            inputs, recurrent, bias, weight, out = parameters
            zeros = x.new_zeros((1, x.shape[1], recurrent.shape[1]))
            # The function that implements `torch.nn.LSTM` has two biases; the second is zeros here.
            all_steps = torch._VF.lstm(
                x,
                (zeros, zeros),
                [inputs, recurrent, bias, torch.zeros_like(bias)],
                True,
                1,
                0.0,
                False,
                False,
                False,
            )[0]
            logits = torch.addmm(out, all_steps.flatten(0, 1), weight)
            return torch.nn.functional.cross_entropy(logits, y.flatten())

        return {"": (loss, turned)}

    def jax_losses(self, jax):
        jnp = jax.numpy

        def loss(parameters, x, y):
            inputs, recurrent, bias, weight, out = parameters

            def step(state, projected):
                hidden, cell = state
                i, f, g, o = jnp.split(projected + hidden @ recurrent, 4, -1)
                cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
                hidden = (jax.nn.sigmoid(o) * jnp.tanh(cell)).astype(x.dtype)
                return (hidden, cell), hidden

            zeros = jnp.zeros((x.shape[1], recurrent.shape[0]), x.dtype)
            state = (zeros, transformer.jax_wide(jax, zeros))
            _, hidden = jax.lax.scan(step, state, x @ inputs + bias)
            return jax_cross_entropy(jax, hidden @ weight + out, y)

        return {"": loss}


# --------------------------------------------------------------------------------------- optimisers


def torch_step(torch, loss, parameters, x, y, decay, **settings):
    """A step as a function without arguments that returns the loss."""
    leaves = [p.requires_grad_() for p in parameters]
    settings.update(lr=RATE, betas=(FIRST, SECOND), eps=EPSILON, weight_decay=decay)
    optimizer = (torch.optim.AdamW if decay else torch.optim.Adam)(leaves, **settings)

    def run():
        optimizer.zero_grad(set_to_none=True)
        value = loss(leaves, x, y)
        value.backward()
        optimizer.step()
        return (value.detach(),)

    return run


def jax_step(jax, loss, decay):
    """A step that maps a state (parameters, two moments, count), inputs and targets to the next
    state and the loss."""
    jnp = jax.numpy

    def step(state, x, y):
        parameters, m, v, count = state
        value, gradient = jax.value_and_grad(loss)(parameters, x, y)
        count = count + 1
        m = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, m, gradient)
        v = jax.tree.map(lambda v, g: SECOND * v + (1 - SECOND) * g * g, v, gradient)
        first, second = 1 - FIRST**count, 1 - SECOND**count
        moved = lambda p, m, v: p * (1 - RATE * decay) - RATE * (m / first) / (
            jnp.sqrt(v / second) + EPSILON
        )
        return (jax.tree.map(moved, parameters, m, v), m, v, count), value

    return step
