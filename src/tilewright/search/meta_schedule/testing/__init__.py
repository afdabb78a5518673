"""TVM's `tvm.meta_schedule.testing`: checks of design spaces, parts without effect, and a tracker on this machine."""
