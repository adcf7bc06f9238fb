// What the bytes of program files (.pte) and data files (.ptd) are, and what programs plan at run
// time. Private to audit/.
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
  std::vector<Leaf> leaves;  // of the whole file
  // Keys that its tensors and its delegates expect in data files.
  std::set<std::string> external_keys;
  bool knows_all_keys = true;  // false: a delegate is of a kind that we cannot read
};
// `loaded` has been read from `file`. `name` begins the messages. kBadInput for a delegate of a
// known backend that is malformed.
Result<ProgramLeaves> leaves_of_program(const pte::LoadedProgram& loaded,
                                        std::span<const std::byte> file, uint32_t file_index,
                                        const std::string& name);

// Adds the methods of a program and its buffers.
void add_memory(const pte::Program& program, uint32_t file_index, Memory& memory);

// `tensors`: leaves of the tensors, at their offsets, that a manifest has of the file; empty: the
// file says what it has.
std::vector<Leaf> leaves_of_data(const ptd::DataFile& data, uint64_t file_bytes,
                                 uint32_t file_index, std::vector<Leaf> tensors);

}  // namespace ferry::audit
