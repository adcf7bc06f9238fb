// Proof against the checkpoint. Every weight of a bundle is derived again from the source and
// compared bit for bit, also those that logits cannot see; so are its programs. Then the bundle is
// held to what the checkpoint's model computes in f32, and that to a reference, if there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/coded_proof.h"
#include "proof/parity_report.h"
#include "proof/program_proof.h"
#include "proof/reference.h"
#include "proof/weight_proof.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct CheckpointProof {
  WeightProof tensors;
  ProgramProof programs;
  // A line for each kind of encoding that calibration does not give. None without quantised caches
  // and logits.
  std::optional<std::vector<std::string>> encodings;
  std::optional<ParityReport> f32_path;  // the model in f32 against the reference, if there is one
  // The checkpoint's model in f64 against the reference says how far the reference is from the
  // model. It is a measurement, and none is made with a given tolerance.
  std::optional<ParityReport> f64_path;
  std::optional<CodedProof> codes;  // of a bundle with rounded or quantised weights
  // The bundle against the model in f32: a measurement where `codes` compares. None where the model
  // computes values that are not finite: there is nothing to compare with, and `problem` says so.
  std::optional<ParityReport> outputs;
  std::string problem;
  // With CheckpointOptions::details: the files of the checkpoint, as they were read.
  std::vector<packer::ManifestSourceFile> source_files;

  bool parity() const {
    return tensors.ok() && programs.ok() && (!encodings || encodings->empty()) &&
           (!f32_path || f32_path->parity) && (!codes || codes->parity()) && outputs &&
           outputs->parity;
  }
};

struct CheckpointOptions {
  std::string checkpoint = {};           // anything that ConvertOptions::source accepts
  std::string config = {};               // as ConvertOptions::config
  std::string lora = {};                 // as ConvertOptions::lora
  std::string calibrate = {};            // file of prompts as for convert; may be empty
  std::string calibrate_prefill = {};    // file of prompts for prefill_forward
  std::optional<double> tolerance = {};  // largest absolute logit error; none: docs/verifying.md
  std::optional<uint64_t> memory = {};   // bytes that planned memory of the bundle may have
  runner::DecodeOptions decode = {};     // of the bundle
  bool details = false;                  // for a report: as in proof::VerifyOptions
  ProgressFor progress = {};
};

// Prompts are those of `reference`, or fixed pseudo-random ones where it is null. A checkpoint that
// does not fit the model at all is an error, weights and programs that differ are not.
Result<CheckpointProof> prove_against_checkpoint(const packer::Bundle& bundle,
                                                 const CheckpointOptions& options,
                                                 const Reference* reference, ThreadPool& pool);

}  // namespace ferry::proof
