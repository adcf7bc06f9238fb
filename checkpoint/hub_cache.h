// find_source() finds a model of the Hugging Face hub in the local cache of its tools, by name.
// The layout is that of huggingface_hub: models--ORG--NAME/{refs/REVISION, snapshots/COMMIT/FILE,
// blobs/HASH}, where the files of a snapshot are links to blobs.
#pragma once

#include <string>

#include "core/result.h"

namespace ferry::checkpoint {

// Returns the directory of the cache: $HF_HUB_CACHE, or else $HUGGINGFACE_HUB_CACHE, or else the
// folder "hub" of $HF_HOME, or else that of $XDG_CACHE_HOME/huggingface, or else that of
// ~/.cache/huggingface.
std::string hub_cache_directory();

// Returns the path that `text` means. A text that names something on the disk is returned as it is,
// and so is one that cannot be the name of a model: the caller says that such a path is missing. A
// name is ORG/NAME[@REVISION][:FILE] or ORG/NAME/FILE.gguf, also behind "hf://" or as the address
// of a page of huggingface.co. A word without "/" is a name where the cache has it. REVISION is a
// branch, a tag, or a commit or its beginning; without it, "main". FILE chooses a GGUF file of the
// snapshot: its name, or a part of its name such as Q4_K_M. A snapshot that has nothing but one
// GGUF file means that file.
//
// kIo if the cache does not have the model, the revision or a blob; the message has the command
// that downloads it. kUsage if several files fit, kBadInput if none does or if a file of the
// snapshot is a link to anything but a blob.
Result<std::string> find_source(const std::string& text);

// Returns what an error about a missing file of a snapshot ends with: the command that downloads
// the rest, and whether a download has not ended. Empty if `directory` is no snapshot of the cache.
std::string how_to_complete(const std::string& directory);

// Returns the snapshot of a folder models--ORG--NAME: that of the branch main, or the only one, or
// "snapshots/REVISION" below it where there are several. Empty for other folders.
std::string snapshot_of_entry(const std::string& directory);

}  // namespace ferry::checkpoint
