// Values of a graph in other types than f32. Between nodes they are kept in f32 as the numbers that
// they stand for, rounded to those that their type has: a code c of qint8 or quint8 stands for
// (c - zero_point) * scale. Constants become f32 when the graph is compiled. This is not a public
// header.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "kernels/kernel_table.h"
#include "runner/delegate/node_rules.h"

namespace ferry::runner {

// Returns whether values of this type are kept in f32: fp32, fp16, bf16, qint8 and quint8.
bool is_kept(xnnpack::Datatype datatype);
// Returns the dtype of an argument of a call in one of these types.
DType argument_dtype(xnnpack::Datatype datatype);
// Returns whether this kind only moves values, or chooses among them, so that nothing is to round.
bool moves_values(xnnpack::NodeKind kind);

// Returns a constant of any type but 4-bit codes as f32. kBadInput if it or its scales have too few
// bytes.
Result<std::vector<float>> widened_constant(const xnnpack::Value& value,
                                            std::span<const std::span<const std::byte>> constants);

// Adds how the value is stored, after the tensors to read: scale (0 without codes) and zero point.
void add_encoding(const xnnpack::Value& value, KernelArgs& args);

// -- kernels
Status widen_argument(const kernels::Call& call);  // argument, encoding -> out in f32
Status narrow_result(const kernels::Call& call);   // f32, encoding -> argument
// self, encoding -> out, which may be self; variant is the dtype of the type
Status round_values(const kernels::Call& call);

}  // namespace ferry::runner
