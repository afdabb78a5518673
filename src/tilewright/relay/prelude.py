"""`Prelude`: lists, options, trees and their functions, written in Relay (`relay/std/prelude.rly`); tensor arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.ir import dialects
from tilewright.ir.module import IRModule
from tilewright.relay import tensor_arrays


class Prelude:
    """Adds the standard definitions to a module; each function is an attribute.

        p = Prelude(mod)
        list_type, cons, nil = p.mod.get_type("List")
        call = p.map(f, cons(x, nil()))
        write = p.get_global_var("tensor_array_write", "float32")

    Existing definitions of the module are kept. The types of tensor arrays of any rank are there for TVM's dtypes.
    Functions over tensor arrays of a dtype, or of a dtype and a shape, are added when they are first asked for.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if not self._has_type("List"):
            self.mod.import_from_std("prelude.rly")
        missing = [d for d in tensor_arrays.DTYPES if not self._has_type(tensor_arrays.type_name(d, None))]
        if missing:
            self._add(tensor_arrays.VERSION + "".join(tensor_arrays.definition(d, None) for d in missing))

    def __getattr__(self, name: str) -> Any:
        if name == "mod" or name not in self.mod:
            raise AttributeError(f"the prelude has no function '{name}'")
        return self.mod.get_global_var(name)

    def __dir__(self) -> list[str]:
        return ["mod", *self.mod]

    def get_name(self, canonical: str, dtype: str) -> str:
        """Return the name of a function, constructor or type of tensor arrays of any rank: `tensor1` ->
        `tensor1_float32`."""
        return self.get_name_static(canonical, dtype, None)

    def get_name_static(self, canonical: str, dtype: str, shape: Sequence[Any] | None) -> str:
        """Return the name of a function, constructor or type of tensor arrays of one shape."""
        if canonical == "tensor_t":
            return tensor_arrays.type_name(dtype, shape)
        return f"{canonical}_{tensor_arrays.suffix(dtype, shape)}"

    def get_type(self, name: str, dtype: str | None = None) -> Any:
        """Return a data type's name and its constructors; the type `tensor_t` of a dtype alone."""
        if dtype is None:
            return self.mod.get_type(name)
        return self.get_type_static(name, dtype, None)

    def get_type_static(self, canonical: str, dtype: str, shape: Sequence[Any] | None) -> Any:
        """Return the data type `tensor_t` of a dtype and a shape."""
        self._define(dtype, shape)
        return self.mod.get_global_type_var(self.get_name_static(canonical, dtype, shape))

    def get_global_var(self, canonical: str, dtype: str) -> Any:
        """Return a function over tensor arrays of a dtype. Raises `KeyError` for an unknown one."""
        return self.get_global_var_static(canonical, dtype, None)

    def get_global_var_static(self, canonical: str, dtype: str, shape: Sequence[Any] | None) -> Any:
        """Return a function over tensor arrays of a dtype and a shape. Raises `KeyError` for an unknown one."""
        self._define(dtype, shape)
        return self.mod.get_global_var(self.get_name_static(canonical, dtype, shape))

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Any:
        """Return a constructor, `tensor_nil` or `tensor0` to `tensor6`, of a dtype."""
        return self.get_tensor_ctor_static(canonical, dtype, None)

    def get_tensor_ctor_static(self, canonical: str, dtype: str, shape: Sequence[Any] | None) -> Any:
        """Return a constructor, `tensor_nil` or `tensor_constructor`, of a dtype and a shape."""
        self._define(dtype, shape)
        return self.mod.get_constructor(tensor_arrays.type_name(dtype, shape),
                                        self.get_name_static(canonical, dtype, shape))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str) -> Any:
        """Return a constructor of the data type `ty_name`, by its name for any dtype (`tensor1`)."""
        return self.get_ctor_static(ty_name, canonical, dtype, None)

    def get_ctor_static(self, ty_name: str, canonical: str, dtype: str, shape: Sequence[Any] | None) -> Any:
        """Return a constructor of the data type `ty_name`, for a dtype and a shape."""
        self._define(dtype, shape)
        return self.mod.get_constructor(ty_name, self.get_name_static(canonical, dtype, shape))

    def _has_type(self, name: str) -> bool:
        return name in {header.name_hint for header in self.mod.type_definitions}

    def _add(self, text: str) -> None:
        self.mod.update(dialects.parse(text, "tensor_arrays", self.mod))

    def _define_type(self, dtype: str, shape: Sequence[Any] | None) -> None:
        if not self._has_type(tensor_arrays.type_name(dtype, shape)):
            self._add(tensor_arrays.VERSION + tensor_arrays.definition(dtype, shape))

    def _define(self, dtype: str, shape: Sequence[Any] | None) -> None:
        self._define_type(dtype, None)
        self._define_type(dtype, shape)
        if self.get_name_static("tensor_array_stack", dtype, shape) in self.mod:
            return
        for other in () if shape is None else tensor_arrays.results_of(shape):
            self._define_type(dtype, other)
        self._add(tensor_arrays.of_any_rank(dtype) if shape is None else tensor_arrays.of_shape(dtype, shape))


class TensorArrayOps:
    """The functions over tensor arrays of a dtype; see `Prelude.get_global_var`."""

    def __init__(self, prelude: Prelude, dtype: str) -> None:
        self.prelude, self.dtype = prelude, dtype

    def get_name(self, canonical: str) -> str:
        """Return the name of a function, constructor or type."""
        return self.prelude.get_name(canonical, self.dtype)

    def get_global_var(self, canonical: str) -> Any:
        """Return a function."""
        return self.prelude.get_global_var(canonical, self.dtype)

    def register(self) -> None:
        """Add the functions to the module."""
        self.prelude.get_type("tensor_t", self.dtype)


class StaticTensorArrayOps:
    """The functions over tensor arrays of a dtype and a shape; see `Prelude.get_global_var_static`."""

    def __init__(self, prelude: Prelude, dtype: str, shape: Sequence[Any]) -> None:
        self.prelude, self.dtype, self.shape = prelude, dtype, list(shape)

    def get_name(self, canonical: str) -> str:
        """Return the name of a function, constructor or type."""
        return self.prelude.get_name_static(canonical, self.dtype, self.shape)

    def get_global_var(self, canonical: str) -> Any:
        """Return a function."""
        return self.prelude.get_global_var_static(canonical, self.dtype, self.shape)

    def get_ctor(self, canonical: str) -> Any:
        """Return a constructor."""
        return self.prelude.get_tensor_ctor_static(canonical, self.dtype, self.shape)

    def register(self) -> None:
        """Add the functions to the module, and the type of tensors of any rank."""
        self.prelude._define(self.dtype, self.shape)

    def define_tensor_array_scatter(
        self, indices_shape: Sequence[Any] | None = None, force_update: bool = False) -> None:
        """Define `tensor_array_scatter` for indices of this shape, if it is not defined, or with `force_update`."""
        self.register()
        if force_update:
            name, n = tensor_arrays.type_name(self.dtype, self.shape), tensor_arrays.suffix(self.dtype, self.shape)
            self._replace(tensor_arrays.scatter(n, name, tensor_arrays.vector_of(indices_shape)))

    def define_tensor_array_gather(
        self, indices_shape: Sequence[Any] | None = None, force_update: bool = False) -> None:
        """Define `tensor_array_gather` for indices of this shape, if it is not defined, or with `force_update`."""
        self.register()
        if force_update:
            name, n = tensor_arrays.type_name(self.dtype, self.shape), tensor_arrays.suffix(self.dtype, self.shape)
            stacked = tensor_arrays.type_name(self.dtype, ["?", *self.shape])
            self._replace(tensor_arrays.gather(n, name, stacked, tensor_arrays.vector_of(indices_shape)))

    def define_tensor_array_split(
        self, value_shape: Sequence[Any] | None = None, lengths_shape: Sequence[Any] | None = None,
        force_update: bool = False,
    ) -> None:
        """Define `tensor_array_split` for lengths of this shape, if it is not defined, or with `force_update`. Raises
        `OptionError` for values of another shape than the array's."""
        self.register()
        if not force_update:
            return
        if value_shape is not None and list(value_shape) != self.shape:
            raise OptionError(
                f"values of the shape {tuple(value_shape)} are not tensors of this array, {tuple(self.shape)}; use "
                "StaticTensorArrayOps of their shape", code="TW0202")
        part = ["?", *self.shape[1:]]
        self._replace(tensor_arrays.split(
            tensor_arrays.suffix(self.dtype, self.shape), tensor_arrays.type_name(self.dtype, self.shape),
            tensor_arrays.vector_of(lengths_shape), tensor_arrays.suffix(self.dtype, part),
            tensor_arrays.type_name(self.dtype, part)))

    def _replace(self, text: str) -> None:
        self.prelude._add(tensor_arrays.VERSION + text)
