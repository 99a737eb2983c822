"""U-Net and ResNet in JAX, for `memory.py`: the networks and training steps of
`bench/src/case/unet.rs` and `resnet.rs`.

Images are `[batch, height, width, channels]`, filters `[height, width, inputs, outputs]`.
Parameters are a list of arrays in the order of `shapes`. The computation equals this library's.
Padding is explicit, because `"SAME"` pads differently with a stride.
"""

import math

LAYOUT = ("NHWC", "HWIO", "NHWC")
# SHARE: weight of a batch in the running statistics
RATE, MOMENTUM, EPSILON, SHARE = 0.1, 0.9, 1e-5, 0.1


def convolution(jax, x, weight, stride=1):
    around = [(extent // 2, extent // 2) for extent in weight.shape[:2]]
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), around, dimension_numbers=LAYOUT
    )


def max_pool(jax, x, extent, around=0):
    padding = [(0, 0), (around, around), (around, around), (0, 0)]
    return jax.lax.reduce_window(
        x, -math.inf, jax.lax.max, (1, extent, extent, 1), (1, 2, 2, 1), padding
    )


def cross_entropy(jax, logits, y):
    chosen = jax.numpy.take_along_axis(logits, y[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


class UNet:
    """Softmax cross-entropy per pixel, Adam (`steps.jax_step`). Filter taps of the up-convolutions
    are in JAX's order, which is the reverse of this library's."""

    decay = 0.0

    def __init__(self, network):
        self.network = network
        width, depth = network["width"], network["depth"]
        level = lambda n: width << n
        self.shapes = {}

        def layer(name, *shape):
            self.shapes[f"{name}.weight"] = (list(shape), None)
            self.shapes[f"{name}.bias"] = ([shape[-1]], None)

        def pair(name, inputs, outputs):
            layer(f"{name}.conv1", 3, 3, inputs, outputs)
            layer(f"{name}.conv2", 3, 3, outputs, outputs)

        before = lambda n: level(n - 1) if n else network["channels"]
        for n in range(depth):
            pair(f"down.{n}", before(n), level(n))
        pair("bottom", before(depth), level(depth))
        for n in range(depth):
            at = depth - 1 - n
            layer(f"up.{n}.up", 2, 2, level(at + 1), level(at))
            pair(f"up.{n}.pair", level(at + 1), level(at))
        layer("out", 1, 1, width, network["classes"])

    def arguments(self):
        """Shapes of the images and of the classes of their pixels."""
        n = self.network
        pixels = [n["batch"], n["extent"], n["extent"]]
        return [*pixels, n["channels"]], pixels

    def jax_losses(self, jax):
        depth = self.network["depth"]

        def loss(parameters, x, y):
            left = iter(parameters)
            layer = lambda x: convolution(jax, x, next(left)) + next(left)
            pair = lambda x: jax.nn.relu(layer(jax.nn.relu(layer(x))))
            seen = []
            for _ in range(depth):
                seen.append(pair(x))
                x = max_pool(jax, seen[-1], 2)
            x = pair(x)
            for _ in range(depth):
                x = jax.lax.conv_transpose(
                    x, next(left), (2, 2), "VALID", dimension_numbers=LAYOUT
                ) + next(left)
                x = pair(jax.numpy.concatenate([seen.pop(), x], -1))
            return cross_entropy(jax, layer(x), y)

        return {"": loss}


class ResNet:
    """Cross-entropy, gradient descent with momentum. Batch norms use the statistics of the batch,
    and update the running statistics."""

    def __init__(self, network):
        self.network = network
        inputs, self.shapes, self.statistics = network["width"], {}, {}

        def layer(name, norm, *shape):
            self.shapes[f"{name}.weight"] = (list(shape), None)
            for part in ("weight", "bias"):
                self.shapes[f"{norm}.{part}"] = ([shape[-1]], None)
            for part in ("running_mean", "running_var"):
                self.statistics[f"{norm}.{part}"] = [shape[-1]]

        layer("conv1", "bn1", 7, 7, network["channels"], inputs)
        for stage, blocks in enumerate(network["blocks"]):
            within = network["width"] << stage
            for block in range(blocks):
                at = f"layer{stage + 1}.{block}"
                layer(f"{at}.conv1", f"{at}.bn1", 1, 1, inputs, within)
                layer(f"{at}.conv2", f"{at}.bn2", 3, 3, within, within)
                layer(f"{at}.conv3", f"{at}.bn3", 1, 1, within, 4 * within)
                if block == 0:
                    layer(f"{at}.downsample.0", f"{at}.downsample.1", 1, 1, inputs, 4 * within)
                inputs = 4 * within
        self.shapes["fc.weight"] = ([inputs, network["classes"]], None)
        self.shapes["fc.bias"] = ([network["classes"]], None)

    def arguments(self):
        """Shapes of the images and of their classes."""
        n = self.network
        return [n["batch"], n["extent"], n["extent"], n["channels"]], [n["batch"]]

    def forward(self, jax, variance_of):
        """Loss and updated running statistics, as a function of parameters, running statistics,
        images and classes."""
        jnp = jax.numpy

        def loss(parameters, statistics, x, y):
            left, running, seen = iter(parameters), iter(statistics), []

            def layer(x, stride=1):
                x = convolution(jax, x, next(left), stride)
                gamma, beta = next(left), next(left)
                mean = x.mean((0, 1, 2))
                variance = variance_of(jnp, x, mean)
                count = math.prod(x.shape[:3])
                for new in (mean, variance * (count / (count - 1))):
                    seen.append((1 - SHARE) * next(running) + SHARE * jax.lax.stop_gradient(new))
                return (x - mean) * (jax.lax.rsqrt(variance + EPSILON) * gamma) + beta

            x = max_pool(jax, jax.nn.relu(layer(x)), 3, 1)
            for stage, blocks in enumerate(self.network["blocks"]):
                for block in range(blocks):
                    stride = 2 if stage > 0 and block == 0 else 1
                    inner = jax.nn.relu(layer(x))
                    inner = layer(jax.nn.relu(layer(inner, stride)))
                    x = jax.nn.relu(inner + (layer(x, stride) if block == 0 else x))
            logits = x.mean((1, 2)) @ next(left) + next(left)
            return cross_entropy(jax, logits, y), seen

        return loss

    def jax_steps(self, jax):
        """Variants of the training step by name; they differ in how norms compute the variance. A
        state is parameters, velocities, statistics."""

        def step_of(loss):
            def step(state, x, y):
                parameters, velocities, statistics = state
                (value, statistics), gradient = jax.value_and_grad(loss, has_aux=True)(
                    parameters, statistics, x, y
                )
                velocities = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocities, gradient)
                parameters = jax.tree.map(lambda p, v: p - RATE * v, parameters, velocities)
                return (parameters, velocities, statistics), value

            return step

        ways = {
            "mean square of what is centred": lambda jnp, x, mean: jnp.square(x - mean).mean(
                (0, 1, 2)
            ),
            # Flax's default.
            "mean square less squared mean": lambda jnp, x, mean: jnp.maximum(
                jnp.square(x).mean((0, 1, 2)) - jnp.square(mean), 0.0
            ),
        }
        return {name: step_of(self.forward(jax, variance)) for name, variance in ways.items()}
