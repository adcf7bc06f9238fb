// What files a checkpoint has: for reports and attestations of what a bundle was compared with.
#pragma once

#include <vector>

#include "core/json_writer.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/manifest.h"
#include "plan/conversion.h"

namespace ferry::proof {

// Reads and hashes every tensor that the conversion reads, and so gives what the manifest of its
// bundle states. Memory is that of a block for each thread.
Result<std::vector<packer::ManifestSourceFile>> digest_sources(const plan::Conversion& conversion,
                                                               ThreadPool& pool);

// Whatever their order.
bool same_files(std::vector<packer::ManifestSourceFile> a,
                std::vector<packer::ManifestSourceFile> b);

// The member `files` of an open object.
void write_source_files(JsonWriter& json, const std::vector<packer::ManifestSourceFile>& files);

}  // namespace ferry::proof
