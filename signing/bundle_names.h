// Members and values of the JSON of signature bundles, shared by the reader and the writer. Private
// to signing/.
#pragma once

#include <string_view>

namespace ferry::signing {

inline constexpr std::string_view kMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json";
inline constexpr std::string_view kMediaTypeKey = "mediaType";
inline constexpr std::string_view kMaterial = "verificationMaterial";
inline constexpr std::string_view kPublicKey = "publicKey";
inline constexpr std::string_view kHint = "hint";
inline constexpr std::string_view kRawBytes = "rawBytes";
inline constexpr std::string_view kChain = "x509CertificateChain";
inline constexpr std::string_view kCertificates = "certificates";
inline constexpr std::string_view kCertificateMember = "certificate";  // the keyless method has it
inline constexpr std::string_view kLogEntries = "tlogEntries";
inline constexpr std::string_view kTimestamps = "timestampVerificationData";
inline constexpr std::string_view kEnvelope = "dsseEnvelope";
inline constexpr std::string_view kPayload = "payload";
inline constexpr std::string_view kPayloadType = "payloadType";
inline constexpr std::string_view kSignatures = "signatures";
inline constexpr std::string_view kSignatureMember = "sig";
inline constexpr std::string_view kKeyId = "keyid";

}  // namespace ferry::signing
