// Files of a checkpoint that a release carries along although nothing here reads them: licence,
// notices, model card, and the tokenizer files of other programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/directory.h"
#include "packer/bundle_writer.h"

namespace ferry::checkpoint {

// Whether a file of this name is carried along: a name of the table in carried_files.cc, or that of
// a legal text ("LICENSE", "LICENSE-MODEL.md", "NOTICE.txt", "Use_Policy.md"), in upper or lower
// case.
bool is_carried(std::string_view name);

// Appends them to `copied`, in ascending order of names. One that cannot be taken along is left
// out, and `notes` gets a line with the reason: it is no regular file, it is too large, or it is a
// link out of the folder, or the folder cannot be listed.
void carry_files(const Directory& directory, std::vector<packer::CopiedFile>& copied,
                 std::vector<std::string>& notes);

}  // namespace ferry::checkpoint
