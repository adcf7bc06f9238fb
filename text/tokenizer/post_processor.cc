#include "text/tokenizer/tokenizer_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using TemplatePiece = PostProcessor::Piece;

constexpr size_t kMaxPieces = 64, kMaxTemplates = 4;

// Returns the ids of the special token `name` in the table `special_tokens`.
Result<std::vector<int64_t>> special_ids(const json& table, const std::string& name,
                                         const std::string& where) {
  const auto entry = table.find(name);
  if (entry == table.end()) {
    return bad_input(fmt::format("{}: special_tokens lacks {}", where, quoted(name, 60)));
  }
  StepFields fields = FERRY_TRY(StepFields::of(*entry, where + ": special_tokens"));
  fields.find("id");
  fields.find("tokens");  // the texts of the ids, which encoding does not need
  std::vector<int64_t> ids;
  for (const json& id : *FERRY_TRY(fields.array("ids"))) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId) ||
        ids.size() == kMaxPieces) {
      return fields.bad("bad ids");
    }
    ids.push_back(id.get<int64_t>());
  }
  FERRY_RETURN_IF_ERROR(fields.finish());
  return ids;
}

Result<TemplatePiece> read_template_piece(const json& value, const json& table,
                                          const std::string& where, bool pair) {
  StepFields piece = FERRY_TRY(StepFields::of(value, where));
  const json* special = piece.find("SpecialToken");
  const json* sequence = piece.find("Sequence");
  FERRY_RETURN_IF_ERROR(piece.finish());
  if ((special == nullptr) == (sequence == nullptr)) {
    return piece.bad("neither SpecialToken nor Sequence");
  }
  StepFields fields = FERRY_TRY(StepFields::of(special != nullptr ? *special : *sequence, where));
  const std::string id = FERRY_TRY(fields.text("id"));
  const json* stated = fields.find("type_id");
  const bool typed = stated != nullptr && stated->is_number_unsigned();
  const int64_t type = typed ? std::min(stated->get<int64_t>(), kMaxTokenId) : 0;
  FERRY_RETURN_IF_ERROR(fields.finish());
  if (special != nullptr) {
    return TemplatePiece{false, FERRY_TRY(special_ids(table, id, where)), false, type};
  }
  if (id == "A" || (pair && id == "B")) return TemplatePiece{true, {}, id == "B", type};
  return piece.bad(fmt::format("sequence {} in '{}'", quoted(id, 60), pair ? "pair" : "single"));
}

Result<std::vector<TemplatePiece>> read_template_pieces(const json& list, const json& table,
                                                        const std::string& where, bool pair) {
  std::vector<TemplatePiece> pieces;
  for (const json& value : list) {
    pieces.push_back(FERRY_TRY(read_template_piece(value, table, where, pair)));
  }
  return pieces;
}

// Returns the template of pairs; none where it does not have each text once.
std::vector<TemplatePiece> read_pair_template(const json* list, const json& table,
                                              const std::string& where) {
  if (list == nullptr || !list->is_array() || list->size() > kMaxPieces) return {};
  auto pieces = read_template_pieces(*list, table, where, /*pair=*/true);
  if (!pieces) return {};
  const auto count = [&](bool second) {
    return std::ranges::count_if(
        *pieces, [&](const TemplatePiece& p) { return p.is_text && p.second == second; });
  };
  return count(false) == 1 && count(true) == 1 ? *std::move(pieces) : std::vector<TemplatePiece>();
}

Result<PostProcessor::Template> read_template(StepFields& fields) {
  const json* table = fields.find("special_tokens");
  if (table == nullptr || !table->is_object()) return fields.bad("'special_tokens' is missing");
  const json* pair = fields.find("pair");
  const json* single = FERRY_TRY(fields.array("single"));
  if (single->size() > kMaxPieces) return fields.bad("'single' is too long");
  PostProcessor::Template made;
  made.single = FERRY_TRY(read_template_pieces(*single, *table, fields.where(), /*pair=*/false));
  // A template with the text several times would multiply its size with each template.
  if (std::ranges::count(made.single, true, &TemplatePiece::is_text) > 1) {
    return fields.unsupported("'single' repeats the text");
  }
  made.pair = read_pair_template(pair, *table, fields.where());
  return made;
}

// Reads a special token of the form [text, id].
Result<TemplatePiece> read_pair(StepFields& fields, const char* key) {
  const json& pair = *FERRY_TRY(fields.array(key));
  const bool sane = pair.size() == 2 && pair[0].is_string() && pair[1].is_number_unsigned() &&
                    pair[1].get<uint64_t>() <= static_cast<uint64_t>(kMaxTokenId);
  if (!sane) return fields.bad(fmt::format("'{}' is not a token with its id", key));
  return TemplatePiece{false, {pair[1].get<int64_t>()}};
}

// BertProcessing and RobertaProcessing put one token before the text and one behind it. Between the
// texts of a pair stand one and two; the second text has a type of its own in BERT.
Result<PostProcessor::Template> read_enclosing(StepFields& fields, bool is_bert) {
  const TemplatePiece before = FERRY_TRY(read_pair(fields, "cls"));
  const TemplatePiece behind = FERRY_TRY(read_pair(fields, "sep"));
  const int64_t type = is_bert ? 1 : 0;
  TemplatePiece end = behind;
  end.type = type;
  PostProcessor::Template made;
  made.single = {before, {.is_text = true}, behind};
  made.pair = made.single;
  if (!is_bert) made.pair.push_back(behind);
  made.pair.push_back({.is_text = true, .second = true, .type = type});
  made.pair.push_back(std::move(end));
  return made;
}

Status read_post_processor_step(StepFields& fields, const std::string& type,
                                std::vector<PostProcessor::Template>& templates, bool& trims,
                                bool& prefixed) {
  const bool is_template = type == "TemplateProcessing";
  const bool is_bert = type == "BertProcessing";
  const bool encloses = is_bert || type == "RobertaProcessing";
  if (!is_template && !encloses && type != "ByteLevel") return fields.unknown_type(type);
  if (is_template || encloses) {
    if (templates.size() == kMaxTemplates) return fields.bad("too many templates");
    templates.push_back(
        FERRY_TRY(is_template ? read_template(fields) : read_enclosing(fields, is_bert)));
  }
  if (is_template || is_bert) return {};
  const bool prefix = FERRY_TRY(fields.flag("add_prefix_space", true));
  if (FERRY_TRY(fields.flag("trim_offsets", true))) {
    trims = true;
    prefixed = prefix;
  }
  FERRY_TRY(fields.flag("use_regex", true));
  return {};
}

void append_special(const TemplatePiece& piece, bool with_spans, TypedTokens& out) {
  out.ids.insert(out.ids.end(), piece.ids.begin(), piece.ids.end());
  out.types.resize(out.ids.size(), piece.type);
  out.special.resize(out.ids.size(), true);
  if (with_spans) out.spans.resize(out.ids.size(), TextRange{0, 0});
}

void append_text(const TemplatePiece& piece, const TypedTokens& text, TypedTokens& out) {
  out.ids.insert(out.ids.end(), text.ids.begin(), text.ids.end());
  out.types.resize(out.ids.size(), piece.type);
  out.special.insert(out.special.end(), text.special.begin(), text.special.end());
  out.spans.insert(out.spans.end(), text.spans.begin(), text.spans.end());
}

}  // namespace

Result<PostProcessor> PostProcessor::make(const json& value, const std::string& where) {
  PostProcessor processor;
  FERRY_RETURN_IF_ERROR(
      for_each_step(value, where, "processors", [&](StepFields& fields, const std::string& type) {
        return read_post_processor_step(fields, type, processor.templates_, processor.trims_,
                                        processor.prefixed_);
      }));
  return processor;
}

std::vector<int64_t> PostProcessor::apply(std::vector<int64_t> ids) const {
  for (const Template& step : templates_) {
    std::vector<int64_t> out;
    for (const TemplatePiece& piece : step.single) {
      const std::vector<int64_t>& more = piece.is_text ? ids : piece.ids;
      out.insert(out.end(), more.begin(), more.end());
    }
    ids = std::move(out);
  }
  return ids;
}

Result<TypedTokens> PostProcessor::apply(TypedTokens first, TypedTokens* second) const {
  if (second != nullptr &&
      (templates_.size() > 1 || (!templates_.empty() && templates_.front().pair.empty()))) {
    return fail(ErrorCode::kUnsupported,
                "the tokenizer's post-processor does not say how a pair of texts is joined");
  }
  if (second != nullptr && templates_.empty()) {
    append_text({.is_text = true, .second = true, .type = 1}, *second, first);
    return first;
  }
  for (const Template& step : templates_) {
    TypedTokens out;
    for (const TemplatePiece& piece : second != nullptr ? step.pair : step.single) {
      if (piece.is_text) {
        append_text(piece, piece.second ? *second : first, out);
      } else {
        append_special(piece, !first.spans.empty(), out);
      }
    }
    first = std::move(out);
  }
  return first;
}

size_t PostProcessor::added(bool pair) const {
  if (!pair) return apply(std::vector<int64_t>()).size();
  size_t count = 0;
  for (const Template& step : templates_) {
    for (const TemplatePiece& piece : step.pair) count += piece.ids.size();
  }
  return count;
}

}  // namespace ferry::text
