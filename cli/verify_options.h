// The command line of ferry verify: its options, and which of them go together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/attest.h"
#include "cli/command_line.h"
#include "cli/run_options.h"
#include "core/result.h"
#include "proof/bundle_proof.h"
#include "proof/perplexity.h"

namespace ferry::cli {

struct VerifyLine {
  std::string bundle;  // or the text decoder of `loose`
  LooseOptions loose;
  proof::BundleProofOptions verify;
  std::string mode;
  std::string adapter;
  std::string imatrix;
  std::optional<int64_t> memory;
  std::string perplexity;  // path of a file with token ids or text
  bool text = false;
  std::optional<int64_t> window, stride;
  std::string kv_bits;
  proof::QualityLimits limits;
  std::string report;  // path of the report to write
  AttestOptions attest;
};

void add_verify_options(Verb& verb, VerifyLine& line);

// The kinds of files that are executed and compared.
enum class VerifySubject { kBundle, kGguf, kBundledProgram, kLoosePrograms };

// Returns kUsage for options that exclude each other, or that `subject` does not take.
Status check_verify_line(const VerifyLine& line, VerifySubject subject);

// Returns kUsage unless the options compare the bytes of a GGUF file with a checkpoint, or its
// outputs with a reference.
Status check_gguf_line(const VerifyLine& line);

}  // namespace ferry::cli
