"""Ethos-U by Arm's own compiler: a part of a network as a TFLite file, through Vela, as a command stream and weights
in the program.

    mod = relay.op.contrib.ethosu.partition_for_ethosu(mod, params, accelerator_config="ethos-u55-128")
    lib = relay.build(mod, "llvm")        # needs Vela: pip install ethos-u-vela

The module of a part (`library_calls.LibraryModule`) has one call, `ethos_u_invoke`, of the inputs, then the command
stream and the weights; its attributes say where in the scratch memory inputs and outputs are. It runs on the device
only; `stand_in("ethos-u")` computes the operators' meaning instead.
"""
