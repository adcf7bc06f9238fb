// Describes the bytes of program files (.pte) and data files (.ptd), and the memory that programs
// plan. Private to audit/.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/leaf.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"

namespace ferry::audit {

struct ProgramLeaves {
  std::vector<Leaf> leaves;  // cover the whole file
  // Keys that the program's tensors and delegates expect in data files.
  std::set<std::string> external_keys;
  // False if some delegate's blob cannot be read, which may expect further keys.
  bool knows_all_keys = true;
};
// `loaded` has been read from `file`. Error messages begin with `name`. Returns kBadInput for a
// malformed blob of XnnpackBackend.
Result<ProgramLeaves> leaves_of_program(const pte::LoadedProgram& loaded,
                                        std::span<const std::byte> file, uint32_t file_index,
                                        const std::string& name);

// Adds the methods and mutable buffers of a program to `memory`.
void add_memory(const pte::Program& program, uint32_t file_index, Memory& memory);

// `tensors` are the leaves of the tensors that a manifest lists for the file. If empty, the tensors
// come from the file.
std::vector<Leaf> leaves_of_data(const ptd::DataFile& data, uint64_t file_bytes,
                                 uint32_t file_index, std::vector<Leaf> tensors);

}  // namespace ferry::audit
