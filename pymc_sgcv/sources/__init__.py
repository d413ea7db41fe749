# SPDX-License-Identifier: Apache-2.0
"""Rows wherever they are, and passes over them.

In: arrays, memory maps, Zarr and Dask arrays, Parquet files, functions. Out: a `Source` for each of
them, and the results of a function of all their rows, block by block.
"""
