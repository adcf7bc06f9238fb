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
                                          const std::string& where) {
  StepFields piece = FERRY_TRY(StepFields::of(value, where));
  const json* special = piece.find("SpecialToken");
  const json* sequence = piece.find("Sequence");
  FERRY_RETURN_IF_ERROR(piece.finish());
  if ((special == nullptr) == (sequence == nullptr)) {
    return piece.bad("neither SpecialToken nor Sequence");
  }
  StepFields fields = FERRY_TRY(StepFields::of(special != nullptr ? *special : *sequence, where));
  const std::string id = FERRY_TRY(fields.text("id"));
  fields.find("type_id");  // matters only for pairs of texts, which Ferry never encodes
  FERRY_RETURN_IF_ERROR(fields.finish());
  if (special != nullptr) return TemplatePiece{false, FERRY_TRY(special_ids(table, id, where))};
  if (id != "A") return piece.bad(fmt::format("sequence {} in 'single'", quoted(id, 60)));
  return TemplatePiece{true, {}};
}

Result<std::vector<TemplatePiece>> read_template(StepFields& fields) {
  const json* table = fields.find("special_tokens");
  if (table == nullptr || !table->is_object()) return fields.bad("'special_tokens' is missing");
  fields.find("pair");  // the template for pairs of texts, which Ferry never encodes
  const json* single = FERRY_TRY(fields.array("single"));
  if (single->size() > kMaxPieces) return fields.bad("'single' is too long");
  std::vector<TemplatePiece> pieces;
  for (const json& value : *single) {
    pieces.push_back(FERRY_TRY(read_template_piece(value, *table, fields.where())));
  }
  // A template with the text several times would multiply its size with each template.
  if (std::ranges::count(pieces, true, &TemplatePiece::is_text) > 1) {
    return fields.unsupported("'single' repeats the text");
  }
  return pieces;
}

// Reads a special token of the form [text, id].
Result<TemplatePiece> read_pair(StepFields& fields, const char* key) {
  const json& pair = *FERRY_TRY(fields.array(key));
  const bool sane = pair.size() == 2 && pair[0].is_string() && pair[1].is_number_unsigned() &&
                    pair[1].get<uint64_t>() <= static_cast<uint64_t>(kMaxTokenId);
  if (!sane) return fields.bad(fmt::format("'{}' is not a token with its id", key));
  return TemplatePiece{false, {pair[1].get<int64_t>()}};
}

// BertProcessing and RobertaProcessing put one token before the text and one behind it.
Result<std::vector<TemplatePiece>> read_enclosing(StepFields& fields) {
  TemplatePiece before = FERRY_TRY(read_pair(fields, "cls"));
  TemplatePiece behind = FERRY_TRY(read_pair(fields, "sep"));
  return std::vector<TemplatePiece>{std::move(before), {true, {}}, std::move(behind)};
}

Status read_post_processor_step(StepFields& fields, const std::string& type,
                                std::vector<std::vector<TemplatePiece>>& templates) {
  const bool is_template = type == "TemplateProcessing";
  const bool encloses = type == "BertProcessing" || type == "RobertaProcessing";
  if (!is_template && !encloses && type != "ByteLevel") return fields.unknown_type(type);
  if (is_template || encloses) {
    if (templates.size() == kMaxTemplates) return fields.bad("too many templates");
    templates.push_back(FERRY_TRY(is_template ? read_template(fields) : read_enclosing(fields)));
  }
  if (is_template || type == "BertProcessing") return {};
  // flags that concern only offsets
  for (const char* flag : {"add_prefix_space", "trim_offsets", "use_regex"}) {
    FERRY_RETURN_IF_ERROR(fields.flag(flag, true));
  }
  return {};
}

}  // namespace

Result<PostProcessor> PostProcessor::make(const json& value, const std::string& where) {
  PostProcessor processor;
  FERRY_RETURN_IF_ERROR(
      for_each_step(value, where, "processors", [&](StepFields& fields, const std::string& type) {
        return read_post_processor_step(fields, type, processor.templates_);
      }));
  return processor;
}

std::vector<int64_t> PostProcessor::apply(std::vector<int64_t> ids) const {
  for (const std::vector<TemplatePiece>& pieces : templates_) {
    std::vector<int64_t> out;
    for (const TemplatePiece& piece : pieces) {
      const std::vector<int64_t>& more = piece.is_text ? ids : piece.ids;
      out.insert(out.end(), more.begin(), more.end());
    }
    ids = std::move(out);
  }
  return ids;
}

}  // namespace ferry::text
