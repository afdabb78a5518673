"""TVM's `tvm.contrib.target`: other forms in which a network is written."""
