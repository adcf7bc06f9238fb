#include "core/base64.h"
#include "core/json_writer.h"
#include "signing/bundle_names.h"
#include "signing/envelope.h"

namespace ferry::signing {
namespace {

void write_material(JsonWriter& json, const Envelope& envelope) {
  json.begin_object();
  if (envelope.has_certificates) {
    json.key(kChain).begin_object().key(kCertificates).begin_array();
    for (const std::string& certificate : envelope.certificates) {
      json.begin_object().member(kRawBytes, to_base64(certificate)).end_object();
    }
    json.end_array().end_object();
  } else {
    json.key(kPublicKey).begin_object().member(kHint, *envelope.hint).end_object();
  }
  json.key(kLogEntries).begin_array().end_array();
  json.end_object();
}

void write_signed(JsonWriter& json, const Envelope& envelope) {
  json.begin_object();
  json.member(kPayload, to_base64(envelope.payload)).member(kPayloadType, envelope.payload_type);
  json.key(kSignatures).begin_array().begin_object();
  json.member(kSignatureMember, envelope.signature).member(kKeyId, "");
  json.end_object().end_array().end_object();
}

}  // namespace

std::string write_envelope(const Envelope& envelope) {
  JsonWriter json;
  json.begin_object().member(kMediaTypeKey, kMediaType);
  json.key(kMaterial);
  write_material(json, envelope);
  json.key(kEnvelope);
  write_signed(json, envelope);
  json.end_object();
  std::string text = json.take();
  text.pop_back();  // removes the line end
  return text;
}

}  // namespace ferry::signing
