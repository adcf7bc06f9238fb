#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "text/tokenizer/regex_dialect.h"

namespace ferry::text {
namespace {

// in bytes after compilation, because {1000} of {1000} is a short text
constexpr size_t kMaxCode = 1 << 20;
constexpr uint32_t kMaxNesting = 50;
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackMin = 64 << 10, kJitStackMax = 8 << 20;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[160];
  const int size = pcre2_get_error_message(code, buffer, sizeof buffer);
  return size < 0 ? fmt::format("error {}", code) : std::string(reinterpret_cast<char*>(buffer));
}

template <class T>
T info(const pcre2_code* code, uint32_t what) {
  T value{};
  pcre2_pattern_info(code, what, &value);
  return value;
}

}  // namespace

struct Regex::Impl {
  Code code;
  MatchData data;
  MatchContext context;
  JitStack stack;
  std::string where;
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::compile(std::string_view pattern, const std::string& where) {
  const std::string translated = FERRY_TRY(to_pcre2(pattern, where));
  const CompileContext limits(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(limits.get(), kMaxNesting);
  int error = 0;
  size_t offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->where = where;
  impl->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, limits.get()));
  if (!impl->code) return bad_input(fmt::format("{}: regex: {}", where, error_text(error)));
  if (info<size_t>(impl->code.get(), PCRE2_INFO_SIZE) > kMaxCode) {
    return bad_input(where + ": the regex is too large");
  }
  if (info<uint32_t>(impl->code.get(), PCRE2_INFO_MATCHEMPTY) != 0) {
    return fail(ErrorCode::kUnsupported, where + ": a regex that may match nothing");
  }
  // Without a JIT compiler for the processor, the interpreter of PCRE2 gives the same matches more
  // slowly.
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  impl->data.reset(pcre2_match_data_create(1, nullptr));
  impl->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(impl->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl->context.get(), kHeapLimitKib);
  impl->stack.reset(pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr));
  pcre2_jit_stack_assign(impl->context.get(), nullptr, impl->stack.get());
  return Regex(std::move(impl));
}

Status Regex::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int count = pcre2_match(impl_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                  impl_->data.get(), impl_->context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return bad_input(fmt::format("{}: regex: {}", impl_->where, error_text(count)));
    }
    const size_t* range = pcre2_get_ovector_pointer(impl_->data.get());
    if (range[1] <= at) return bad_input(impl_->where + ": regex: an empty match");
    matches.push_back({static_cast<uint32_t>(range[0]), static_cast<uint32_t>(range[1])});
    at = range[1];
  }
  return {};
}

}  // namespace ferry::text
