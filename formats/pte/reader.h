// Reads .pte files with full validation, stricter than the official InternalConsistency check:
// every index, offset, size, list, operator arity and argument kind is checked before a Program is
// handed out, so that whoever executes it needs no further structural checks. In particular:
//   - a tensor with an allocation lies in planned memory, views included, which are planned exactly
//     where their tensor is;
//   - known operators (op_schema.h) get arguments of the right number and kinds, and write only
//     tensors with an allocation, or outputs without one that no view makes;
//   - calls of delegates and named data refer to what is there; keys occur once;
//   - a list of tensors holds earlier values, a list of integers holds Int values.
// Only an execution can find out the sizes of dynamic tensors, whether a view without an allocation
// has been made before it is read, the kinds that an operator of scalars produces, and whether an
// operator is known at all. Dimension orders are permutations, not always the identity.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/result.h"
#include "formats/pte/program.h"
#include "formats/pte/writer.h"  // DataSizes

namespace ferry::pte {

// Ranges of bytes in the file that the Program's data_index values refer to. Spans point into the
// file passed to read_program.
struct ProgramData {
  // constants[i] begins at constant i (data_index i without allocation) and extends to the end of
  // its segment. Every constant tensor of the program has been checked to fit. constants[0] is an
  // unused placeholder.
  std::vector<std::span<const std::byte>> constants;
  // initial[i] is, in the same way, the initial contents of a mutable buffer (data_index i with
  // allocation).
  std::vector<std::span<const std::byte>> initial;
  // The exact ranges that Delegate::data and NamedData::data refer to, in the order of first use.
  // There is no placeholder.
  std::vector<std::span<const std::byte>> delegates;
  std::vector<std::span<const std::byte>> named;
  // These numbers are for reports of sizes.
  uint64_t program_bytes = 0;   // the FlatBuffer with its headers
  uint64_t constant_bytes = 0;  // the constant segment
  uint64_t initial_bytes = 0;   // the mutable data segment
  uint64_t delegate_bytes = 0;  // blobs of delegates, each counted once
  uint64_t named_bytes = 0;     // named data, each counted once
};

// Returns the number of bytes for each index, as plan_program() expects them.
DataSizes sizes_of(const ProgramData& data);

struct LoadedProgram {
  Program program;
  ProgramData data;
};

// `file` must stay alive as long as the spans of the result are used. `name` begins the messages.
Result<LoadedProgram> read_program(std::span<const std::byte> file, const std::string& name);

}  // namespace ferry::pte
