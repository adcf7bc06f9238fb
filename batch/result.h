// The records of an attempt at a task, and their JSON files. docs/batch.md describes the members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_writer.h"
#include "core/result.h"

namespace ferry::batch {

enum class Outcome { kDone, kFailed, kInterrupted };

// The reason why a task is not done.
enum class Class {
  kNone,
  kInput,
  kUnsupported,
  kUsage,
  kIo,
  kMemory,
  kParity,
  kDamage,
  kExpectation,
  kExists,
  kCrash,
  kSignal,
  kLease,
  kInternal,
};

const char* name_of(Outcome outcome);
const char* name_of(Class reason);

// One process of an attempt.
struct Step {
  std::string name;  // "convert", "verify" or "check"
  int exit = 0;
  int signal = 0;  // number of the signal that ended the process, or 0
  double seconds = 0, processor_seconds = 0;
  uint64_t max_rss_bytes = 0;
};

// The verdict and metrics of `ferry verify`.
struct Parity {
  bool parity = false;
  std::optional<double> max_abs = {}, sqnr_db = {}, top1_agreement = {}, kl_max = {};
};

// A file of a bundle, copied from the manifest.
struct OutputFile {
  std::string path;
  uint64_t bytes = 0;
  std::string method, digest;
};

struct AttemptResult {
  std::string ferry = {};  // version of Ferry
  std::string id = {}, input = {}, output = {}, fingerprint = {};
  uint64_t index = 0, attempt = 0;
  Outcome outcome = Outcome::kFailed;
  int exit = 0;
  Class reason = Class::kNone;
  bool transient = false;
  std::string message = {};
  std::string host = {}, start = {};
  double seconds = 0, processor_seconds = 0;
  uint64_t max_rss_bytes = 0, input_bytes = 0, output_bytes = 0;
  std::string sha256 = {};  // digest of manifest.json; empty if there is no bundle
  std::vector<OutputFile> outputs = {};
  std::optional<Parity> parity = {};
  std::vector<Step> steps = {};

  // Returns whether only another input or another version of Ferry can change the outcome.
  bool is_final() const;
};

// The record that is written before the first process of an attempt starts. A killed attempt has no
// other record.
struct Started {
  std::string fingerprint = {}, host = {}, boot = {}, start = {};
  int64_t process = 0;
  uint64_t process_start = 0;  // start of the process in clock ticks since the host booted
  // There was no output, or the attempt was to replace it. So an output that exists now is from
  // this attempt.
  bool may_replace = false;
};

std::string to_json(const AttemptResult& result);
std::string to_json(const Started& started);
// Write a member of the open JSON object.
void write_parity(JsonWriter& json, const std::optional<Parity>& parity);
void write_steps(JsonWriter& json, const std::vector<Step>& steps);

// Error messages begin with `name`. Return kBadInput for a document that to_json() cannot have
// written.
Result<AttemptResult> parse_result(const std::string& text, const std::string& name);
Result<Started> parse_started(const std::string& text, const std::string& name);

}  // namespace ferry::batch
