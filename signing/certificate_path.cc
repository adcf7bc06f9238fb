#include "signing/certificate_path.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <utility>

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

}  // namespace ferry::signing
