// What an attempt to do a task came to, and its file. docs/batch.md describes the members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_writer.h"
#include "core/result.h"

namespace ferry::batch {

enum class Outcome { kDone, kFailed, kInterrupted };

// Why a task is not done.
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

// A process that ran for an attempt.
struct Step {
  std::string name;  // "convert", "verify", "check"
  int exit = 0;
  int signal = 0;  // that ended it, or 0
  double seconds = 0, processor_seconds = 0;
  uint64_t max_rss_bytes = 0;
};

// What `ferry verify` measured.
struct Parity {
  bool parity = false;
  std::optional<double> max_abs = {}, sqnr_db = {}, top1_agreement = {}, kl_max = {};
};

// A file of a bundle, as its manifest has it.
struct OutputFile {
  std::string path;
  uint64_t bytes = 0;
  std::string method, digest;
};

struct AttemptResult {
  std::string ferry = {};  // version
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
  std::string sha256 = {};  // of manifest.json; empty where there is no bundle
  std::vector<OutputFile> outputs = {};
  std::optional<Parity> parity = {};
  std::vector<Step> steps = {};

  // Nothing but another input, or another Ferry, will change it.
  bool is_final() const;
};

// Written before the first process of an attempt starts, and all that is known of one that was
// killed.
struct Started {
  std::string fingerprint = {}, host = {}, boot = {}, start = {};
  int64_t process = 0;
  uint64_t process_start = 0;  // of that process, in clock ticks since the host booted
  // Nothing stood in the way, or it was to be replaced: what is there now is of this attempt.
  bool may_replace = false;
};

std::string to_json(const AttemptResult& result);
std::string to_json(const Started& started);
// Members of an object that is open.
void write_parity(JsonWriter& json, const std::optional<Parity>& parity);
void write_steps(JsonWriter& json, const std::vector<Step>& steps);

// `name` begins the messages. kBadInput for anything that to_json() does not write.
Result<AttemptResult> parse_result(const std::string& text, const std::string& name);
Result<Started> parse_started(const std::string& text, const std::string& name);

}  // namespace ferry::batch
