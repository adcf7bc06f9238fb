// Proves a bundle against its checkpoint. Every weight of the bundle, also those that no logit
// depends on, is derived again from the source and compared bit for bit, and so are the programs.
// Then the outputs of the bundle are compared with those that the checkpoint's model computes in
// f32, and these with a reference, if there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/coded_proof.h"
#include "proof/matched_weights.h"
#include "proof/parity_report.h"
#include "proof/program_proof.h"
#include "proof/reference.h"
#include "proof/weight_proof.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct CheckpointProof {
  WeightProof tensors;
  ProgramProof programs;
  // False for programs of another tool, whose weights and programs cannot be made again.
  bool made_again = true;
  std::optional<MatchedWeights> matched;  // the weights of such a program
  // One line for each kind of encoding that calibration does not give. nullopt if neither caches
  // nor logits are quantised.
  std::optional<std::vector<std::string>> encodings;
  std::optional<ParityReport> f32_path;  // the model in f32 against the reference, if there is one
  // The checkpoint's model in f64 against the reference, which measures how far the reference is
  // from the model. nullopt if a tolerance was given.
  std::optional<ParityReport> f64_path;
  std::optional<CodedProof> codes;  // for a bundle with rounded or quantised weights
  // The bundle against the model in f32. It is only a measurement if `codes` compares. nullopt if
  // the model computes values that are not finite; `problem` then says so.
  std::optional<ParityReport> outputs;
  std::string problem;
  // With CheckpointOptions::details: the files of the checkpoint that were read.
  std::vector<packer::ManifestSourceFile> source_files;

  // Whether the outputs can tell a right program from a wrong one. A program of another tool that
  // cannot be held to its own weights is decided only by outputs that lose little.
  bool decided() const;
  bool parity() const {
    return tensors.ok() && programs.ok() && (!encodings || encodings->empty()) &&
           (!matched || matched->different().empty()) && (!f32_path || f32_path->parity) &&
           (!codes || codes->parity()) && outputs && outputs->parity;
  }
};

struct CheckpointOptions {
  std::string checkpoint = {};           // see ConvertOptions::source
  std::string config = {};               // see ConvertOptions::config
  std::string lora = {};                 // see ConvertOptions::lora
  std::string mmproj = {};               // see ConvertOptions::mmproj
  std::string calibrate = {};            // path of a file of prompts; may be empty
  std::string calibrate_prefill = {};    // path of a file of prompts for prefill_forward
  std::string calibrate_weights = {};    // path of the text that the weights were calibrated with
  std::optional<double> tolerance = {};  // largest absolute logit error; default: docs/verifying.md
  std::optional<uint64_t> memory = {};   // limit of the bundle's planned memory in bytes
  runner::DecodeOptions decode = {};     // how the bundle decodes
  bool details = false;                  // collect details for a report; see proof::VerifyOptions
  ProgressFor progress = {};
};

// The prompts are those of `reference`, or fixed pseudo-random ones if `reference` is null. A
// checkpoint that does not fit the model is an error. Weights and programs that differ are not; the
// proof reports them.
Result<CheckpointProof> prove_against_checkpoint(const packer::Bundle& bundle,
                                                 const CheckpointOptions& options,
                                                 const Reference* reference, ThreadPool& pool);

}  // namespace ferry::proof
