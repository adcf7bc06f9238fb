// Reads what was proved of a bundle: a parity attestation (docs/attestation.md), or a parity report
// as JSON (docs/reports.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "proof/attestation.h"
#include "signing/verify_envelope.h"

namespace ferry::card {

struct ProvedFigure {
  std::string id, ours, expected, output;
  std::string precision, source;                    // of the bounds
  std::optional<double> max_abs_bound, floor;       // bounds: the largest distance; dB
  std::optional<double> max_abs, sqnr_db, kl_mean;  // dB of the SQNR; nats
  std::optional<double> top1_agreement;             // a share, 0 to 1
  int64_t greedy_match = 0, greedy_total = 0;       // tokens
};

struct ProofFigures {
  std::string name;    // name of the file, without directories
  std::string text;    // the whole file
  std::string sha256;  // of `text`
  bool attested = false;
  // Who signed the attestation. Absent if there was no key to check it with, and for reports.
  std::optional<signing::Signer> signer = {};
  std::string claim;  // one sentence
  std::string ferry;  // version of the program that compared
  std::vector<ProvedFigure> figures = {};
  std::vector<std::string> proves = {}, does_not_prove = {};
};

// The bundle that the proof must be about.
struct ProvedBundle {
  const proof::BundleDigest& digest;
  std::string manifest_sha256;  // as the manifest states it of itself
};

// Reads the file at `path`. With `trust` the signature of an attestation is verified. kBadInput for
// a file of another kind, a signature that is not trusted, a report without parity, and a proof of
// another bundle; kUsage for `trust` with a report.
Result<ProofFigures> read_proof(const std::string& path, const ProvedBundle& bundle,
                                const std::optional<signing::Trust>& trust);

}  // namespace ferry::card
