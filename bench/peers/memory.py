"""Memory of a compiled training step, for `wengert-bench memory`. The step is compiled and not run
(`bench/src/memory`)."""

import math
import time

import steps


def ways_of(jax, network):
    """Variants of a training step by name, and the types of its arguments: a donated state, inputs
    and targets."""
    jnp = jax.numpy
    floats = lambda shapes: [jax.ShapeDtypeStruct(tuple(shape), jnp.float32) for shape in shapes]
    parameters = floats(shape for shape, _ in network.shapes.values())
    if hasattr(network, "jax_steps"):
        ways, state = network.jax_steps(jax), (
            parameters,
            parameters,
            floats(network.statistics.values()),
        )
    else:
        ways = {
            name: steps.jax_step(jax, loss, network.decay)
            for name, loss in network.jax_losses(jax).items()
        }
        state = (parameters, parameters, parameters, jax.ShapeDtypeStruct((), jnp.int32))
    if hasattr(network, "arguments"):
        x, y = network.arguments()
        batch = floats([x])[0], jax.ShapeDtypeStruct(tuple(y), jnp.int32)
    else:
        batch = (jax.ShapeDtypeStruct(a.shape, a.dtype) for a in network.data())
    return ways, (state, *batch)


def jax(contender, case):
    """Figures of JAX's compiler for a step: temporary memory, and the results that are not written
    over the donated state."""
    jax = contender.jax
    network = steps.of(case)
    parameters = sum(math.prod(shape) for shape, _ in network.shapes.values())
    if parameters != case["work"]["elements"]:
        raise ValueError(f"the network has {parameters} parameters, not {case['work']['elements']}")
    ways, arguments = ways_of(jax, network)
    found = {}
    with jax.default_device(contender.place):
        for name, step in ways.items():
            begin = time.perf_counter()
            compiled = jax.jit(step, donate_argnums=0).lower(*arguments).compile()
            seconds = time.perf_counter() - begin
            said = compiled.memory_analysis()
            beside = said.output_size_in_bytes - said.alias_size_in_bytes
            found[name] = {
                "temporary_bytes": said.temp_size_in_bytes,
                "result_bytes": beside,
                "compile_seconds": seconds,
            }
            state = said.alias_size_in_bytes
    return {
        "contender": contender.name,
        "device": contender.device,
        "libraries": contender.libraries(),
        "parameters": parameters,
        "state_bytes": state,
        "ways": found,
    }
