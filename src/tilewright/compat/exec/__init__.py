"""Programs for machines with devices: `python -m tilewright.exec.rpc_server`, `rpc_tracker`, `rpc_proxy`,
`query_rpc_tracker`."""
