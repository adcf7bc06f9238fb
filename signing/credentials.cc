#include "signing/credentials.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"

namespace ferry::signing {
namespace {

// This level demands at least 80 bits of security, so no certificate may have a signature by MD5 or
// SHA-1.
constexpr int kSecurityLevel = 1;

Owned<X509> parse_certificate(const std::string& der) {
  const auto* data = reinterpret_cast<const unsigned char*>(der.data());
  const unsigned char* const end = data + der.size();
  Owned<X509> certificate(d2i_X509(nullptr, &data, static_cast<long>(der.size())));
  ERR_clear_error();
  if (data != end) certificate.reset();
  return certificate;
}

Result<Certificates> parse_all(const std::vector<std::string>& ders, const std::string& name) {
  Certificates parsed;
  for (const std::string& der : ders) {
    parsed.push_back(parse_certificate(der));
    if (!parsed.back()) {
      return bad_input(
          fmt::format("{}: certificate {} is not an X.509 certificate", name, parsed.size()));
    }
  }
  return parsed;
}

}  // namespace

bool may_sign(X509* certificate) {
  const uint32_t flags = X509_get_extension_flags(certificate);
  if ((flags & EXFLAG_INVALID) != 0) return false;
  const bool usage =
      (flags & EXFLAG_KUSAGE) != 0 && (X509_get_key_usage(certificate) & KU_DIGITAL_SIGNATURE) != 0;
  const bool extended = (flags & EXFLAG_XKUSAGE) != 0 &&
                        (X509_get_extended_key_usage(certificate) & XKU_CODE_SIGN) != 0;
  return usage || extended;
}

Result<Owned<X509>> verify_certificate_path(const std::vector<std::string>& certificates,
                                            const Certificates& anchors, std::optional<int64_t> at,
                                            const std::string& name) {
  Certificates chain = FERRY_TRY(parse_all(certificates, name));
  const Owned<X509_STORE> store(X509_STORE_new());
  const Owned<STACK_OF(X509)> helpers(sk_X509_new_null());
  const Owned<X509_STORE_CTX> context(X509_STORE_CTX_new());
  if (!store || !helpers || !context) return fail(ErrorCode::kIo, "not enough memory");
  for (const auto& anchor : anchors) X509_STORE_add_cert(store.get(), anchor.get());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(helpers.get(), chain[i].get());
  if (X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), helpers.get()) != 1) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: cannot verify certificates: {}", name, take_openssl_error()));
  }
  X509_VERIFY_PARAM* const rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_purpose(rules, X509_PURPOSE_ANY);
  X509_VERIFY_PARAM_set_auth_level(rules, kSecurityLevel);
  if (at) X509_VERIFY_PARAM_set_time(rules, static_cast<time_t>(*at));
  const bool verified = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (!verified) {
    const int depth = X509_STORE_CTX_get_error_depth(context.get());
    const int code = X509_STORE_CTX_get_error(context.get());
    return bad_input(
        fmt::format("{}: no path from its certificate to the trust anchor: {} "
                    "(certificate {} of the path)",
                    name, X509_verify_cert_error_string(code), depth + 1));
  }
  if (!may_sign(chain[0].get())) {
    return bad_input(fmt::format(
        "{}: its certificate is neither for digital signatures nor for code signing", name));
  }
  return std::move(chain[0]);
}

std::string subject_of(X509* certificate) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  if (!out ||
      X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) < 0) {
    return {};
  }
  return printable(text_of(out.get()));
}

namespace {

constexpr std::array kCurves = {Curve{"P-256", "prime256v1", "SHA256"},
                                Curve{"P-384", "secp384r1", "SHA384"},
                                Curve{"P-521", "secp521r1", "SHA512"}};

// A text that is wiped when it is no longer needed.
class Secret {
 public:
  explicit Secret(std::string text) : text_(std::move(text)) {}
  ~Secret() { wipe(); }
  Secret(Secret&& other) noexcept : text_(other.text()) { other.wipe(); }
  Secret& operator=(Secret&&) = delete;
  std::string_view text() const { return text_; }

 private:
  void wipe() { OPENSSL_cleanse(text_.data(), text_.size()); }
  std::string text_;
};

// Reads the key in `path`. Only the owner may have access to the file, as ssh demands for its keys.
Result<Secret> read_secret(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  struct stat info {};
  const InputFile::Descriptor descriptor = FERRY_TRY(file.descriptor());
  const bool known = ::fstat(descriptor.fd(), &info) == 0;
  if (!known || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return bad_input(
        fmt::format("{}: others may use this file (mode {:04o}); a secret must belong "
                    "to its owner alone (chmod 600)",
                    printable(path), info.st_mode & 07777));
  }
  return Secret(FERRY_TRY(read_text(file, kMaxPemBytes)));
}

// The source of a passphrase, and the callback with which OpenSSL asks for it.
struct Passphrase {
  std::optional<Secret> secret = {};
  bool asked = false;

  static int give(char* out, int size, int /*for_writing*/, void* context) {
    auto& self = *static_cast<Passphrase*>(context);
    self.asked = true;
    if (!self.secret) return -1;
    std::string_view line = self.secret->text();
    line = line.substr(0, line.find_first_of("\r\n"));
    if (line.size() > static_cast<size_t>(size)) return -1;
    std::memcpy(out, line.data(), line.size());
    return static_cast<int>(line.size());
  }
};

// Counts PEM blocks by their first line; other text may stand between them.
size_t count_blocks(std::string_view text) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  size_t count = 0;
  for (size_t at = 0; (at = text.find(kBegin, at)) != text.npos; at += kBegin.size()) ++count;
  return count;
}

Status refuse_explicit_curve(EVP_PKEY* key, const std::string& name) {
  int is_explicit = 0;
  if (EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS, &is_explicit) ==
          1 &&
      is_explicit != 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the key states the parameters of its curve, not its name", name));
  }
  return {};
}

}  // namespace

Result<const Curve*> curve_of(EVP_PKEY* key, const std::string& name) {
  if (EVP_PKEY_is_a(key, "EC") != 1) {
    const char* kind = EVP_PKEY_get0_type_name(key);
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: a key of type {}; supported are P-256, P-384 and P-521", name,
                            kind == nullptr ? "unknown" : kind));
  }
  FERRY_RETURN_IF_ERROR(refuse_explicit_curve(key, name));
  std::array<char, 80> group{};
  size_t size = 0;
  const bool named = EVP_PKEY_get_group_name(key, group.data(), group.size(), &size) == 1;
  ERR_clear_error();
  const std::string_view found(group.data(), named ? size : 0);
  const auto* curve =
      std::ranges::find_if(kCurves, [&](const Curve& known) { return known.group == found; });
  if (curve != kCurves.end()) return curve;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: a key of the curve {}; supported are P-256, P-384 and P-521", name,
                          named ? found : "unknown"));
}

Result<std::string> public_key_pem(EVP_PKEY* key, const std::string& name) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  const bool written =
      out &&
      EVP_PKEY_set_utf8_string_param(key, OSSL_PKEY_PARAM_EC_ENCODING,
                                     OSSL_PKEY_EC_ENCODING_GROUP) == 1 &&
      EVP_PKEY_set_utf8_string_param(key, OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT,
                                     OSSL_PKEY_EC_POINT_CONVERSION_FORMAT_UNCOMPRESSED) == 1 &&
      PEM_write_bio_PUBKEY(out.get(), key) == 1;
  if (!written) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: cannot encode the public key: {}", name, take_openssl_error()));
  }
  return text_of(out.get());
}

Result<std::string> key_hint(EVP_PKEY* key, const std::string& name) {
  const std::string pem = FERRY_TRY(public_key_pem(key, name));
  return to_hex(sha256(std::as_bytes(std::span(pem))));
}

Result<Owned<EVP_PKEY>> read_public_key(const std::string& path) {
  const std::string text = FERRY_TRY(read_text_file(path, kMaxPemBytes));
  const std::string name = printable(path);
  if (count_blocks(text) != 1 || text.find("-----BEGIN PUBLIC KEY-----") == text.npos) {
    return bad_input(
        fmt::format("{}: not one public key in PEM (-----BEGIN PUBLIC KEY-----)", name));
  }
  Owned<EVP_PKEY> key(PEM_read_bio_PUBKEY(reader_of(text).get(), nullptr, nullptr, nullptr));
  if (!key) {
    return bad_input(fmt::format("{}: not a public key: {}", name, take_openssl_error()));
  }
  ERR_clear_error();
  FERRY_TRY(curve_of(key.get(), name));
  return key;
}

Result<Owned<EVP_PKEY>> read_private_key(const std::string& path,
                                         const std::string& passphrase_file) {
  const std::string name = printable(path);
  const Secret text = FERRY_TRY(read_secret(path));
  Passphrase passphrase;
  if (!passphrase_file.empty()) passphrase.secret.emplace(FERRY_TRY(read_secret(passphrase_file)));
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader_of(text.text()).get(), nullptr,
                                              &Passphrase::give, &passphrase));
  if (!key && passphrase.asked && !passphrase.secret) {
    ERR_clear_error();
    return bad_input(fmt::format("{}: the key is encrypted, and no passphrase is given", name));
  }
  if (!key) {
    const std::string reason = take_openssl_error();
    return bad_input(passphrase.asked
                         ? fmt::format("{}: the passphrase does not decrypt the key", name)
                         : fmt::format("{}: not a private key in PEM: {}", name, reason));
  }
  ERR_clear_error();
  FERRY_TRY(curve_of(key.get(), name));
  return key;
}

Result<Certificates> read_certificates(const std::string& path) {
  const std::string text = FERRY_TRY(read_text_file(path, kMaxPemBytes));
  const size_t blocks = count_blocks(text);
  const Owned<BIO> reader = reader_of(text);
  Certificates found;
  while (X509* next = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  const std::string reason = take_openssl_error();
  if (found.empty() || found.size() != blocks) {
    return bad_input(fmt::format("{}: not only certificates in PEM: {}", printable(path), reason));
  }
  return found;
}

}  // namespace ferry::signing
