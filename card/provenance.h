// Writes how a bundle was made: an in-toto Statement v1 with the predicate SLSA Provenance v1
// (https://slsa.dev/spec/v1.0/provenance). docs/model_cards.md defines the build type.
#pragma once

#include <string>
#include <string_view>

#include "card/facts.h"

namespace ferry::card {

inline constexpr std::string_view kProvenancePredicate = "https://slsa.dev/provenance/v1";
// Defines the parameters. The URI is a name and not an address.
inline constexpr std::string_view kBuildType = "https://ferry/convert/v1";
// A build on a machine that nobody vouches for.
inline constexpr std::string_view kLocalBuilder = "https://ferry/builder/local/v1";

// `builder` is the URI of who ran the conversion. Equal facts give equal bytes. The text has no
// line end.
std::string provenance(const Facts& facts, std::string_view builder);

}  // namespace ferry::card
