// What `ferry inspect` prints: a Listing as tables for people, and as JSON.
#pragma once

#include <string>

#include "listing/listing.h"

namespace ferry::cli {

std::string to_text(const listing::Listing& listing);
std::string to_json(const listing::Listing& listing);

}  // namespace ferry::cli
