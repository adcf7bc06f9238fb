// Writes the document of `ferry verify --report` (docs/verifying.md, "Reports").
#pragma once

#include <string>
#include <string_view>

#include "packer/bundle_reader.h"
#include "proof/bundle_perplexity.h"
#include "proof/bundle_proof.h"

namespace ferry::cli {

// Every report contains this text, whatever its form, so that a file can be recognised as one.
inline constexpr std::string_view kReportMark = "ferry_parity_report";

// The subject of a report: a bundle, and the options with which it was verified. `verification` was
// made with BundleProofOptions::details, or is null for a report of a perplexity.
struct ReportInput {
  const packer::Bundle& bundle;
  const proof::BundleProofOptions& options;
  const proof::Verification* verification = nullptr;
  const proof::PerplexityReport* perplexity = nullptr;
};

std::string parity_document(const ReportInput& input);
// Returns a Markdown summary, for example for the page of a CI job.
std::string parity_markdown(const ReportInput& input);

// Returns the name of a bundle's directory.
std::string bundle_name(const packer::Bundle& bundle);
// Returns the digest that the manifest states of itself.
std::string manifest_digest(const packer::Manifest& manifest);
// Returns the bytes of all files of the bundle, including the manifest.
uint64_t bundle_bytes(const packer::Bundle& bundle);
// Returns the quantisation scheme of the text decoder's matrices; empty if they are not quantised.
std::string quantization_of(const packer::Manifest& manifest);

}  // namespace ferry::cli
