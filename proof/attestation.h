// Parity attestations are in-toto statements that a bundle is at parity with what it was compared
// with (docs/attestation.md). Their subject is the subject of the bundle's signature.
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

// The type of the predicate, which defines its fields. The URI is a name and not an address.
inline constexpr std::string_view kParityPredicate = "https://ferry/parity/v1";

struct AttestedFile {
  std::string name;    // path in the bundle
  std::string sha256;  // SHA-256 of the whole file
};
struct AttestedCheckpoint {
  std::string name;
  std::vector<packer::ManifestSourceFile> files = {};
  uint64_t weights = 0, weight_bytes = 0;  // derived again and equal bit for bit
  uint64_t programs = 0;                   // made again and equal byte for byte
};
struct AttestedBundle {
  std::string name, manifest_sha256;
};
// A comparison of outputs, and the bounds that the outputs keep.
struct AttestedComparison {
  std::string id, ours, expected;
  std::string precision, source;  // precision and source of the bounds, as in a parity report
  std::string output = "logits";  // or "last_hidden_state", "sentence_embedding"
  std::optional<double> max_abs_bound, floor;  // bounds of the output
  double max_abs = 0, sqnr_db = 0;
  std::optional<double> kl_mean, top1_agreement;  // for logits
  int64_t greedy_match = 0, greedy_total = 0;
  int64_t prompts = 0, tokens = 0;
};

// The content of a statement. Bundles that are not at parity have no statement.
struct ParityAttestation {
  std::string bundle;  // name of the bundle, for people
  std::string root;    // SHA-256 over the raw digests of `files`
  std::vector<AttestedFile> files = {};
  std::string ferry, manifest_sha256, model_type;
  std::optional<AttestedCheckpoint> checkpoint = {};
  std::optional<ReferenceFile> reference = {};
  std::optional<AttestedBundle> against = {};
  std::vector<std::pair<std::string, std::string>> options = {};
  // The last comparison is of the bundle as it is.
  std::vector<AttestedComparison> comparisons = {};
  std::vector<std::string> proves = {}, does_not_prove = {};
};

// All files of an open bundle, and the root over them. They are the bytes that were executed, if
// `bundle` was opened with its digests checked.
struct BundleDigest {
  std::string root;
  std::vector<AttestedFile> files = {};  // ascending by name
};
BundleDigest digest_open_bundle(const packer::Bundle& bundle, ThreadPool& pool);

// Returns SHA-256 over the digests of the files in their order, as OpenSSF Model Signing defines
// it.
std::string root_over(const std::vector<AttestedFile>& files);

// Returns the statement without a line end.
std::string write_attestation(const ParityAttestation& attestation);
// kBadInput if the text is not a statement of parity. `name` begins the messages.
Result<ParityAttestation> read_attestation(std::string_view text, const std::string& name);

// kExists if `path` is a file that is not a parity attestation, because no other file may be lost.
// The signature of the existing file is not checked.
Status check_replaceable_attestation(const std::string& path);

struct AttestationCheck {
  std::optional<signing::Rejection> rejection;  // why the signature or the statement was rejected
  std::optional<signing::Signer> signer = {};
  std::optional<ParityAttestation> statement = {};
  // One line for each file that differs from the statement.
  std::vector<std::string> differences = {};
  bool holds() const { return !rejection && statement && differences.empty(); }
};

// Checks whether a trusted signer has stated that exactly the files of `bundle` are at parity.
// Errors are those of signing::verify_envelope() and signing::model_digest().
Result<AttestationCheck> check_attestation(const std::string& bundle, const std::string& file,
                                           const signing::Trust& trust, ThreadPool& pool,
                                           const std::function<void(uint64_t, uint64_t)>& progress);

// Returns the claim in words: "computes what the checkpoint 'x' computes, within ...".
std::string claim_of(const ParityAttestation& attestation);

}  // namespace ferry::proof
