// The document of `ferry verify --report` (docs/verifying.md, "Reports").
#pragma once

#include <string>
#include <string_view>

#include "packer/bundle_reader.h"
#include "proof/bundle_perplexity.h"
#include "proof/bundle_proof.h"

namespace ferry::cli {

// Begins every such document, whatever form it has.
inline constexpr std::string_view kReportMark = "ferry_parity_report";

// The subject of a report: a bundle, and the options that it was verified with. `verification` was
// made with VerifyOptions::details, or is null for a report of a perplexity.
struct ReportInput {
  const packer::Bundle& bundle;
  const proof::BundleProofOptions& options;
  const proof::Verification* verification = nullptr;
  const proof::PerplexityReport* perplexity = nullptr;
};

std::string parity_document(const ReportInput& input);
// A summary for people in Markdown, such as the summary of a CI job.
std::string parity_markdown(const ReportInput& input);

// The name of a bundle's directory.
std::string bundle_name(const packer::Bundle& bundle);
// The digest that the manifest states of itself.
std::string manifest_digest(const packer::Manifest& manifest);
// The bytes of all files of the bundle, the manifest included.
uint64_t bundle_bytes(const packer::Bundle& bundle);
// How the matrices of the text decoder are quantised; empty where they are not.
std::string quantization_of(const packer::Manifest& manifest);

}  // namespace ferry::cli
