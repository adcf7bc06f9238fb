// Parity attestations: in-toto statements that say what a bundle was compared with and that it is
// at parity with it (docs/attestation.md). Their subject is that of the bundle's signature.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "packer/manifest.h"
#include "proof/compared_files.h"
#include "signing/verify_envelope.h"

namespace ferry::proof {

// Names the fields of the predicate. A name, not an address.
inline constexpr std::string_view kParityPredicate = "https://ferry/parity/v1";

struct AttestedFile {
  std::string name;    // of the bundle
  std::string sha256;  // of the whole file
};
struct AttestedCheckpoint {
  std::string name;
  std::vector<packer::ManifestSourceFile> files = {};
  uint64_t weights = 0, weight_bytes = 0;  // derived again and equal, bit for bit
  uint64_t programs = 0;                   // made again and equal, byte for byte
};
struct AttestedBundle {
  std::string name, manifest_sha256;
};
// Outputs that were held to other outputs, and the bounds that they keep.
struct AttestedComparison {
  std::string id, ours, expected;
  std::string precision, source;               // of the bounds, as in a parity report
  std::string output = "logits";               // "last_hidden_state", "sentence_embedding"
  std::optional<double> max_abs_bound, floor;  // of the output
  double max_abs = 0, sqnr_db = 0;
  std::optional<double> kl_mean, top1_agreement;  // of logits
  int64_t greedy_match = 0, greedy_total = 0;
  int64_t prompts = 0, tokens = 0;
};

// There is none of a bundle that is not at parity.
struct ParityAttestation {
  std::string bundle;  // for people
  std::string root;    // SHA-256 over the raw digests of `files`
  std::vector<AttestedFile> files = {};
  std::string ferry, manifest_sha256, model_type;
  std::optional<AttestedCheckpoint> checkpoint = {};
  std::optional<ReferenceFile> reference = {};
  std::optional<AttestedBundle> against = {};
  std::vector<std::pair<std::string, std::string>> options = {};
  std::vector<AttestedComparison> comparisons = {};  // the last is of the bundle as it is
  std::vector<std::string> proves = {}, does_not_prove = {};
};

// All files of the bundle that is open, and the root over them: of the bytes that were executed.
// `bundle` was opened with its digests checked.
struct BundleDigest {
  std::string root;
  std::vector<AttestedFile> files = {};  // in ascending order of names
};
BundleDigest digest_open_bundle(const packer::Bundle& bundle, ThreadPool& pool);

// SHA-256 over the digests of the files in their order, as OpenSSF Model Signing defines it.
std::string root_over(const std::vector<AttestedFile>& files);

// The statement, without a line end.
std::string write_attestation(const ParityAttestation& attestation);
// kBadInput for what is no statement of parity. `name` begins the messages.
Result<ParityAttestation> read_attestation(std::string_view text, const std::string& name);

// kExists where a file is there that is no parity attestation: nothing else may be lost. Whether
// its signature is good does not matter.
Status check_replaceable_attestation(const std::string& path);

struct AttestationCheck {
  std::optional<signing::Rejection> rejection;  // of the signature or the statement
  std::optional<signing::Signer> signer = {};
  std::optional<ParityAttestation> statement = {};
  // A line for each file that is not the one of the statement.
  std::vector<std::string> differences = {};
  bool holds() const { return !rejection && statement && differences.empty(); }
};

// Whether whom the user trusts has said of the very files of `bundle` that they are at parity. An
// error where there is no answer, as in signing::verify_envelope() and signing::model_digest().
Result<AttestationCheck> check_attestation(const std::string& bundle, const std::string& file,
                                           const signing::Trust& trust, ThreadPool& pool,
                                           const std::function<void(uint64_t, uint64_t)>& progress);

// In words: "computes what the checkpoint 'x' computes, within ...".
std::string claim_of(const ParityAttestation& attestation);

}  // namespace ferry::proof
