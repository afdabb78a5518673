"""Ethos-U through Arm's compiler Vela: a part of a network becomes a TFLite file, then a command stream and weights.

    mod = relay.op.contrib.ethosu.partition_for_ethosu(mod, params, accelerator_config="ethos-u55-128")
    lib = relay.build(mod, "llvm")        # needs Vela: pip install ethos-u-vela

The module of a part (`library_calls.LibraryModule`) has one call, `ethos_u_invoke`, of the inputs, then the command
stream and the weights. Its attributes are the offsets of inputs and outputs in the scratch memory. It runs on the
device only; `stand_in("ethos-u")` computes the operators in numpy instead.
"""
