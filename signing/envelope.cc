#include "signing/envelope.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base64.h"
#include "core/json.h"
#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::signing {
namespace {

// Members and values of the JSON of signature bundles.
constexpr std::string_view kMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json";
constexpr std::string_view kMediaTypeKey = "mediaType";
constexpr std::string_view kMaterial = "verificationMaterial";
constexpr std::string_view kPublicKey = "publicKey";
constexpr std::string_view kHint = "hint";
constexpr std::string_view kRawBytes = "rawBytes";
constexpr std::string_view kChain = "x509CertificateChain";
constexpr std::string_view kCertificates = "certificates";
constexpr std::string_view kCertificateMember = "certificate";  // the keyless method has it
constexpr std::string_view kLogEntries = "tlogEntries";
constexpr std::string_view kTimestamps = "timestampVerificationData";
constexpr std::string_view kEnvelope = "dsseEnvelope";
constexpr std::string_view kPayload = "payload";
constexpr std::string_view kPayloadType = "payloadType";
constexpr std::string_view kSignatures = "signatures";
constexpr std::string_view kSignatureMember = "sig";
constexpr std::string_view kKeyId = "keyid";

using nlohmann::json;

// No path from a signer to a root has as many certificates.
constexpr size_t kMostCertificates = 100;

class EnvelopeReader {
 public:
  explicit EnvelopeReader(const std::string& name) : name_(name) {}

  Result<Envelope> read(const json& bundle) {
    FERRY_RETURN_IF_ERROR(
        check_members(bundle, "the bundle", {kMediaTypeKey, kMaterial, kEnvelope}, {}));
    const std::string type = FERRY_TRY(text_of(bundle, "the bundle", kMediaTypeKey));
    if (type != kMediaType) {
      return wrong(fmt::format("{} is {}, not {}", kMediaTypeKey, quoted(type), kMediaType));
    }
    FERRY_RETURN_IF_ERROR(read_material(bundle[kMaterial]));
    FERRY_RETURN_IF_ERROR(read_signed(bundle[kEnvelope]));
    return std::move(envelope_);
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  Failure wrong(const std::string& what) const {
    return bad_input(fmt::format("{}: not a signature bundle: {}", name_, what));
  }

  // Checks that `value` is an object with all of `needed`, some of `optional`, and nothing else.
  Status check_members(const json& value, std::string_view what, Names needed,
                       Names optional) const {
    if (!value.is_object()) return wrong(fmt::format("{} is not an object", what));
    for (const std::string_view member : needed) {
      if (!value.contains(member)) return wrong(fmt::format("{} has no {}", what, member));
    }
    for (const auto& [member, ignored] : value.items()) {
      if (std::ranges::count(needed, member) + std::ranges::count(optional, member) == 0) {
        return wrong(fmt::format("{} has an unknown member {}", what, quoted(member)));
      }
    }
    return {};
  }

  // Returns the text of a member that must exist.
  Result<std::string> text_of(const json& object, std::string_view what,
                              std::string_view member) const {
    const json& value = object[member];
    if (!value.is_string()) return wrong(fmt::format("{} of {} is not a string", member, what));
    return value.get<std::string>();
  }

  Result<std::string> bytes_of(const json& object, std::string_view what,
                               std::string_view member) const {
    const std::string text = FERRY_TRY(text_of(object, what, member));
    auto bytes = from_base64(text);
    if (!bytes) return wrong(fmt::format("{} of {} is not base64", member, what));
    return *std::move(bytes);
  }

  Status read_material(const json& material) {
    FERRY_RETURN_IF_ERROR(
        check_members(material, kMaterial, {},
                      {kPublicKey, kChain, kCertificateMember, kLogEntries, kTimestamps}));
    size_t kinds = 0;
    for (const std::string_view kind : {kPublicKey, kChain, kCertificateMember}) {
      kinds += material.contains(kind);
    }
    if (kinds != 1) {
      return wrong(fmt::format("{} has {} of {}, {} and {}, not one", kMaterial, kinds, kPublicKey,
                               kChain, kCertificateMember));
    }
    if (material.contains(kCertificateMember)) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: a keyless signature (Sigstore certificate and transparency log): "
                      "not supported",
                      name_));
    }
    FERRY_RETURN_IF_ERROR(check_no_log(material));
    return material.contains(kChain) ? read_chain(material[kChain])
                                     : read_key(material[kPublicKey]);
  }

  Status check_no_log(const json& material) const {
    if (!material.contains(kLogEntries)) return {};
    if (!material[kLogEntries].is_array()) return wrong(fmt::format("{} is no list", kLogEntries));
    if (material[kLogEntries].empty()) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: entries of a transparency log: not supported", name_));
  }

  // Bundles before 1.1.0 hold the key itself. That key is not used.
  Status read_key(const json& key) {
    if (!key.is_object()) return wrong(fmt::format("{} is not an object", kPublicKey));
    if (key.contains(kHint)) {
      envelope_.hint = FERRY_TRY(text_of(key, kPublicKey, kHint));
    } else if (key.contains(kRawBytes)) {
      FERRY_TRY(bytes_of(key, kPublicKey, kRawBytes));
    } else {
      return wrong(fmt::format("{} has neither {} nor {}", kPublicKey, kHint, kRawBytes));
    }
    return {};
  }

  Status read_chain(const json& chain) {
    envelope_.has_certificates = true;
    if (!chain.is_object() || !chain.contains(kCertificates) || !chain[kCertificates].is_array() ||
        chain[kCertificates].empty() || chain[kCertificates].size() > kMostCertificates) {
      return wrong(
          fmt::format("{} has no list of 1 to {} {}", kChain, kMostCertificates, kCertificates));
    }
    for (const json& certificate : chain[kCertificates]) {
      if (!certificate.is_object() || !certificate.contains(kRawBytes)) {
        return wrong(fmt::format("a certificate has no {}", kRawBytes));
      }
      envelope_.certificates.push_back(
          FERRY_TRY(bytes_of(certificate, "a certificate", kRawBytes)));
    }
    return {};
  }

  Status read_signed(const json& envelope) {
    FERRY_RETURN_IF_ERROR(
        check_members(envelope, kEnvelope, {kPayload, kPayloadType, kSignatures}, {}));
    envelope_.payload = FERRY_TRY(bytes_of(envelope, kEnvelope, kPayload));
    envelope_.payload_type = FERRY_TRY(text_of(envelope, kEnvelope, kPayloadType));
    const json& signatures = envelope[kSignatures];
    if (!signatures.is_array() || signatures.size() != 1) {
      return wrong(fmt::format("{} is not a list of one signature", kSignatures));
    }
    FERRY_RETURN_IF_ERROR(
        check_members(signatures[0], "the signature", {kSignatureMember}, {kKeyId}));
    envelope_.signature = FERRY_TRY(text_of(signatures[0], "the signature", kSignatureMember));
    return {};
  }

  const std::string& name_;
  Envelope envelope_;
};

}  // namespace

Result<Envelope> read_envelope(std::string_view text, const std::string& name) {
  return EnvelopeReader(name).read(FERRY_TRY(parse_json(text, name + ": not a signature bundle")));
}

namespace {

void write_material(JsonWriter& out, const Envelope& envelope) {
  out.begin_object();
  if (envelope.has_certificates) {
    out.key(kChain).begin_object().key(kCertificates).begin_array();
    for (const std::string& certificate : envelope.certificates) {
      out.begin_object().member(kRawBytes, to_base64(certificate)).end_object();
    }
    out.end_array().end_object();
  } else {
    out.key(kPublicKey).begin_object().member(kHint, *envelope.hint).end_object();
  }
  out.key(kLogEntries).begin_array().end_array();
  out.end_object();
}

void write_signed(JsonWriter& out, const Envelope& envelope) {
  out.begin_object();
  out.member(kPayload, to_base64(envelope.payload)).member(kPayloadType, envelope.payload_type);
  out.key(kSignatures).begin_array().begin_object();
  out.member(kSignatureMember, envelope.signature).member(kKeyId, "");
  out.end_object().end_array().end_object();
}

}  // namespace

std::string write_envelope(const Envelope& envelope) {
  JsonWriter out;
  out.begin_object().member(kMediaTypeKey, kMediaType);
  out.key(kMaterial);
  write_material(out, envelope);
  out.key(kEnvelope);
  write_signed(out, envelope);
  out.end_object();
  std::string text = out.take();
  text.pop_back();  // removes the line end
  return text;
}

}  // namespace ferry::signing
