// Input: any text as a signature bundle, and any text as the signed statement. It is refused in one
// line, or read. The key and the root are those of the seeds (testdata/oms), so that all checks are
// reached.
#include <filesystem>
#include <fstream>

#include "core/base64.h"
#include "signing/envelope.h"
#include "signing/model_statement.h"
#include "signing/verify_envelope.h"
#include "tests/fuzz/require.h"

namespace ferry::signature_fuzz {
namespace {

constexpr const char* kKey =
    "-----BEGIN PUBLIC KEY-----\n"
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEOgHqir+o/vZTkMFdMDY7YhhU4RgO\n"
    "sJti/zPfBpVnAg4brhoTDwl8z2vcXOj3vMc9+gkodClfGyWkyp+Y6Abv2g==\n"
    "-----END PUBLIC KEY-----\n";
constexpr const char* kRoot =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIByDCCAU2gAwIBAgIBATAKBggqhkjOPQQDAzAbMRkwFwYDVQQDDBBvbXMgdmVj\n"
    "dG9ycyByb290MCAXDTI2MDEwMTAwMDAwMFoYDzIwNTYwMTAxMDAwMDAwWjAbMRkw\n"
    "FwYDVQQDDBBvbXMgdmVjdG9ycyByb290MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE\n"
    "pvOpzJvDAI6SRVM+IuWl8gZ88ILF+ZtrHoV8USyaErfrLdmoHjUNBVGSWDnAdHbB\n"
    "5Iuu59I83Tx3K6oPrJaW+cwIl7J1FpLnV6Psvb0HCJhl/G6zYXugp23fewsJFfDN\n"
    "o2MwYTAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQU\n"
    "qO1xMqLbXG0yzXKv3ewFNwBxYKYwHwYDVR0jBBgwFoAUqO1xMqLbXG0yzXKv3ewF\n"
    "NwBxYKYwCgYIKoZIzj0EAwMDaQAwZgIxANOo5Qgy1KtFiiCzbI99C7WnFw99Bn64\n"
    "tWOlbP3fEoq5uKx2JZz6PNjpDR6NrrdvNQIxAOQlW6Z6kwqUedtT4UmBaoSb5x19\n"
    "FffvR9c2o4xynTFK4tM4amk26aFEpKOe40rRxg==\n"
    "-----END CERTIFICATE-----\n";

// Files that the user trusts, written once.
struct Trusted {
  signing::Trust key, root;
  Trusted() {
    const auto directory = std::filesystem::temp_directory_path();
    const auto path = [&](const char* name) { return (directory / name).string(); };
    std::ofstream(path("ferry_fuzz_key.pem")) << kKey;
    std::ofstream(path("ferry_fuzz_root.pem")) << kRoot;
    key.public_key = path("ferry_fuzz_key.pem");
    root.anchors = {path("ferry_fuzz_root.pem")};
    root.at = 1798761600;  // 2027-01-01
  }
};

void check_statement(std::string_view text, const std::string& file_name) {
  const auto statement = signing::read_statement(text, "model.sig", file_name);
  if (!statement) return require_good_message(statement.error());
  // Writing and reading a statement again does not change it.
  const std::string written = signing::write_statement(*statement);
  const auto again = signing::read_statement(written, "model.sig", file_name);
  require(again.has_value());
  require(signing::write_statement(*again) == written);
}

void check_envelope(std::string_view text, const signing::Trust& trust) {
  const auto verdict = signing::verify_envelope(text, "model.sig", trust);
  if (!verdict) return require_good_message(verdict.error());
  if (verdict->rejection) {
    return require_good_message({ErrorCode::kBadInput, verdict->rejection->message});
  }
  const auto envelope = signing::read_envelope(text, "model.sig");
  require(envelope && envelope->payload == verdict->payload);
}

void check(const std::string& text) {
  static const Trusted trusted;
  check_envelope(text, trusted.key);
  check_envelope(text, trusted.root);
  check_statement(text, "");
  const auto envelope = signing::read_envelope(text, "model.sig");
  if (!envelope) return;
  check_statement(envelope->payload, "");
  check_statement(envelope->payload, "weights.bin");
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

}  // namespace ferry::signature_fuzz
