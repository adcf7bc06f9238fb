// Writes about a bundle for people and for other tools: its model card (readme.cc), its
// bill of materials (ml_bom.cc) and its provenance (provenance.cc). Equal facts give equal bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "card/facts.h"

namespace ferry::card {

// Returns the model card, the README.md of a repository at Hugging Face: front matter that
// huggingface_hub accepts, and Markdown. Texts of the checkpoint's card, names of files and lines
// of a proof are untrusted and appear as they are.
std::string readme(const Facts& facts);

// Returns the bill of materials: CycloneDX 1.7 JSON with a machine-learning model (ECMA-424). The
// model is metadata.component, with its files, licences, ancestors and a model card; the data
// sets that the checkpoint's card names are components. `time`, in seconds since 1970, is the
// timestamp; without it there is none.
std::string ml_bom(const Facts& facts, std::optional<int64_t> time);

// Returns a time such as "2026-03-01T12:00:00Z".
std::string time_text(int64_t time);

// The type of the predicate of provenance().
inline constexpr std::string_view kProvenancePredicate = "https://slsa.dev/provenance/v1";
// The build type, which defines the parameters. The URI is a name and not an address.
inline constexpr std::string_view kBuildType = "https://ferry/convert/v1";
// A build on a machine that nobody vouches for.
inline constexpr std::string_view kLocalBuilder = "https://ferry/builder/local/v1";

// Returns how the bundle was made: an in-toto Statement v1 with the predicate SLSA Provenance v1
// (https://slsa.dev/spec/v1.0/provenance). docs/model_cards.md defines the build type. `builder` is
// the URI of who ran the conversion. The text has no line end.
std::string provenance(const Facts& facts, std::string_view builder);

}  // namespace ferry::card
