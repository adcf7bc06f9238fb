// What `ferry inspect` prints: a Listing as tables for people, and as JSON.
#pragma once

#include <string>

#include "pipeline/listing.h"

namespace ferry::cli {

std::string to_text(const pipeline::Listing& listing);
std::string to_json(const pipeline::Listing& listing);

}  // namespace ferry::cli
