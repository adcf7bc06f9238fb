#include <fmt/format.h>

#include "signing/sign_statement.h"

namespace ferry::signing {

std::string pre_authentication_encoding(std::string_view payload_type, std::string_view payload) {
  return fmt::format("DSSEv1 {} {} {} {}", payload_type.size(), payload_type, payload.size(),
                     payload);
}

}  // namespace ferry::signing
