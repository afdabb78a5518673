"""TVM's `relay.backend.executor_factory`: the classes of what `relay.build` returns. Programs have one class here."""

from tilewright.runtime.module import FactoryModule as AOTExecutorFactoryModule
from tilewright.runtime.module import FactoryModule as ExecutorFactoryModule
from tilewright.runtime.module import FactoryModule as GraphExecutorFactoryModule

__all__ = ["AOTExecutorFactoryModule", "ExecutorFactoryModule", "GraphExecutorFactoryModule"]
