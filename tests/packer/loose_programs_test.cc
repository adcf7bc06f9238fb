// Names, encodings and sizes of programs without a manifest.
#include "packer/loose_programs.h"

#include <gtest/gtest.h>

#include <functional>

#include "packer/loose_examination.h"

namespace ferry::packer::loose_programs_test {
namespace {

using Sizes = std::vector<int32_t>;

pte::Tensor tensor(DType dtype, Sizes sizes, bool dynamic = false) {
  pte::Tensor out;
  out.dtype = dtype;
  out.sizes = std::move(sizes);
  if (dynamic) out.dynamism = pte::Dynamism::kDynamicBound;
  return out;
}

pte::Method method(const std::string& name, const std::vector<pte::Tensor>& inputs,
                   const std::vector<pte::Tensor>& outputs) {
  pte::Method out;
  out.name = name;
  for (const auto& [from, to] : {std::pair{&inputs, &out.inputs}, {&outputs, &out.outputs}}) {
    for (const pte::Tensor& value : *from) {
      to->push_back(static_cast<int32_t>(out.values.size()));
      out.values.emplace_back(value);
    }
  }
  return out;
}

pte::Method states(const std::string& name, std::vector<pte::Value> values) {
  pte::Method out;
  out.name = name;
  for (size_t i = 0; i < values.size(); ++i) out.outputs.push_back(static_cast<int32_t>(i));
  out.values = std::move(values);
  return out;
}

// A static decoder with two layers, calls of one token, context 8, 2 heads of 4 elements, and a
// vocabulary of 10.
pte::Method static_method(DType cache = DType::kF32) {
  const auto f32 = DType::kF32;
  return method(
      "kv_forward",
      {tensor(DType::kI32, {1, 1}), tensor(f32, {1, 1, 1, 8}), tensor(DType::kI32, {1, 1}),
       tensor(cache, {1, 2, 4, 7}), tensor(cache, {1, 2, 4, 7}), tensor(cache, {1, 2, 7, 4}),
       tensor(cache, {1, 2, 7, 4})},
      {tensor(f32, {1, 1, 10}), tensor(cache, {1, 2, 4, 1}), tensor(cache, {1, 2, 4, 1}),
       tensor(cache, {1, 2, 1, 4}), tensor(cache, {1, 2, 1, 4})});
}

pte::Tensor& input(pte::Method& m, size_t index) {
  return std::get<pte::Tensor>(m.values[static_cast<size_t>(m.inputs[index])]);
}

std::vector<std::string> names(const std::vector<ManifestPort>& ports) {
  std::vector<std::string> out;
  for (const ManifestPort& port : ports) out.push_back(port.name);
  return out;
}

Result<ManifestMethod> named_decoder(const pte::Program& program) {
  return name_static_decoder(program.methods.front(), {program, "a.pte"}, std::nullopt);
}

using Names = std::vector<std::string>;

TEST(LoosePorts, StaticPortsAreNamedByPosition) {
  const auto ports = named_decoder({{static_method()}});
  ASSERT_TRUE(ports) << ports.error().message;
  EXPECT_EQ(names(ports->inputs), (Names{"tokens", "attention_mask", "input_pos", "k_cache_0",
                                         "k_cache_1", "v_cache_0", "v_cache_1"}));
  EXPECT_EQ(names(ports->outputs), (Names{"logits", "new_k_0", "new_k_1", "new_v_0", "new_v_1"}));
  EXPECT_EQ(count_caches(*ports), 4u);
}

TEST(LoosePorts, SecondMaskIsOfTheWindowThatTheProgramStates) {
  pte::Method m = static_method();
  m.values.emplace_back(tensor(DType::kF32, {1, 1, 1, 8}));
  m.inputs.insert(m.inputs.begin() + 2, static_cast<int32_t>(m.values.size() - 1));
  const auto silent = named_decoder({{m}});
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().message,
            "a.pte: method 'kv_forward': has two masks, and the program no method "
            "get_sliding_window that states the window of the second");
  const auto ports = named_decoder({{m, states("get_sliding_window", {int64_t{4}})}});
  ASSERT_TRUE(ports) << ports.error().message;
  EXPECT_EQ(ports->inputs[1].name, "attention_mask");
  EXPECT_EQ(ports->inputs[2].name, "window_mask");
  EXPECT_EQ(ports->inputs[3].name, "input_pos");
  const auto one = named_decoder({{static_method(), states("get_sliding_window", {int64_t{4}})}});
  ASSERT_FALSE(one);
  EXPECT_NE(one.error().message.find("has one mask, but the program states a window"),
            std::string::npos);
}

TEST(LoosePorts, WhatIsNotAtItsPlaceIsRefusedByMethodAndPort) {
  const struct {
    std::function<void(pte::Method&)> change;
    std::string message;
  } cases[] = {
      {[](auto& m) { input(m, 0).dtype = DType::kI64; },
       "input 0 is i64 [1, 1]; expected tokens i32 [1, AR] or embeddings f32 [1, AR, E]"},
      {[](auto& m) {
         input(m, 1).sizes = {1, 1, 8};
       },
       "input 1 is f32 [1, 1, 8]; expected a mask of [1, 1, 1, CL]"},
      {[](auto& m) { input(m, 2).dtype = DType::kI64; },
       "input 2 is i64 [1, 1]; expected input_pos i32 [1, 1]"},
      {[](auto& m) { m.inputs.erase(m.inputs.begin() + 1); },
       "has no attention mask behind its first input"},
      {[](auto& m) { m.inputs.resize(2); },
       "has no input_pos and no caches: a prefill that keeps nothing"},
      {[](auto& m) { m.outputs.pop_back(); },
       "has 4 inputs behind input_pos and 3 outputs behind the logits; expected as many, K of all "
       "layers and then V of all layers"},
      {[](auto& m) { m.inputs.pop_back(), m.outputs.pop_back(); },
       "has 3 caches; expected K and V of every layer"},
      {[](auto& m) { m.values[0] = int64_t{3}; }, "input 0 is no tensor"},
      {[](auto& m) { input(m, 3).dtype = DType::kU8; },
       "k_cache_0 is u8 and nothing states what its codes stand for"},
  };
  for (const auto& [change, message] : cases) {
    pte::Method m = static_method();
    change(m);
    const auto ports = named_decoder({{m}});
    ASSERT_FALSE(ports) << message;
    EXPECT_EQ(ports.error().message, "a.pte: method 'kv_forward': " + message);
  }
}

TEST(LoosePorts, StatefulPortsAreNamedByPosition) {
  const auto decoder = [](DType ids, Sizes first, Sizes logits, bool dynamic) {
    return name_stateful_decoder(
        method("forward", {tensor(ids, std::move(first), dynamic), tensor(DType::kI64, {1})},
               {tensor(DType::kF32, std::move(logits))}),
        "a.pte");
  };
  const auto tokens = decoder(DType::kI64, {1, 31}, {1, 10}, true);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(names(tokens->inputs), (Names{"tokens", "input_pos"}));
  EXPECT_EQ(names(tokens->outputs), Names{"logits"});
  const auto embeddings = decoder(DType::kF32, {1, 31, 4}, {1, 31, 10}, true);
  ASSERT_TRUE(embeddings);
  EXPECT_EQ(embeddings->inputs[0].name, "embeddings");
  EXPECT_TRUE(decoder(DType::kI64, {1, 1}, {1, 10}, false));
  EXPECT_EQ(decoder(DType::kI64, {1, 31}, {1, 10}, false).error().message,
            "a.pte: method 'forward': input 0 has a fixed length of 31 tokens; expected a dynamic "
            "length, or 1");
  EXPECT_EQ(decoder(DType::kI32, {1, 31}, {1, 10}, true).error().message,
            "a.pte: method 'forward': input 0 is i32 [1, 31]; expected tokens i64 [1, T] or "
            "embeddings f32 [1, T, E]");
  EXPECT_EQ(decoder(DType::kI64, {1, 31}, {1, 7, 10}, true).error().message,
            "a.pte: method 'forward': output 0 is f32 [1, 7, 10]; expected logits f32, f16 "
            "or bf16 [1, V] or [1, 31, V]");
}

std::string size_refusal(const std::vector<pte::Method>& stated, Manifest& m) {
  pte::Program program{{static_method()}};
  program.methods.insert(program.methods.end(), stated.begin(), stated.end());
  const auto ports = named_decoder(program);
  if (!ports) return ports.error().message;
  m.program_style = "static";
  ManifestProgram entry;
  entry.methods = {*ports};
  const Status status = derive_sizes(entry, {program, "a.pte"}, m);
  return status ? "" : status.error().message;
}

TEST(LooseSizes, ComeFromShapes) {
  Manifest m;
  ASSERT_EQ(size_refusal({}, m), "");
  EXPECT_EQ(m.vocab_size, 10);
  EXPECT_EQ(m.context_length, 8);
  EXPECT_EQ(m.prefill_length, 1);
  EXPECT_EQ(m.num_layers, 2);
  EXPECT_EQ(m.hidden_size, 0);
}

TEST(LooseSizes, WhatAProgramStatesMustBeWhatItsPortsHave) {
  const struct {
    std::string method;
    pte::Value value;
    std::string message;
  } cases[] = {
      {"get_vocab_size", int64_t{11}, "gives 11, but logits of method 'kv_forward' has 10"},
      {"get_max_context_len", int64_t{9},
       "gives 9, but attention_mask of method 'kv_forward' has 8"},
      {"get_max_seq_len", int64_t{9}, "gives 9, but attention_mask of method 'kv_forward' has 8"},
      {"get_ar_len", int64_t{2}, "gives 2, but tokens of method 'kv_forward' has 1"},
      {"get_n_layers", int64_t{3}, "gives 3, but the K caches of method 'kv_forward' has 2"},
      {"get_n_kv_heads", int64_t{1}, "gives 1, but k_cache_0 of method 'kv_forward' has 2"},
      {"get_head_dim", int64_t{8}, "gives 8, but k_cache_0 of method 'kv_forward' has 4"},
      {"get_kv_io_bit_width", int64_t{8}, "gives 8, but k_cache_0 of method 'kv_forward' has 32"},
      {"get_vocab_size", std::string("ten"), "does not give one whole number"},
      {"get_max_batch_size", int64_t{4}, "gives 4; supported is 1"},
      {"get_use_kv_cache", false, "gives false, but there is an input_pos"},
  };
  for (const auto& [name, value, message] : cases) {
    Manifest m;
    EXPECT_EQ(size_refusal({states(name, {value})}, m), "a.pte: method " + name + " " + message);
  }
}

const std::string kKv8 = FERRY_TESTDATA "/static_llama/llama_kv8.pte";

TEST(LoosePrograms, EncodingsAreThoseOfTheProgram) {
  const auto bundle = open_loose_programs({.text_decoder = kKv8});
  ASSERT_TRUE(bundle) << bundle.error().message;
  const Manifest& m = bundle->manifest();
  EXPECT_EQ(bundle->path(), kKv8);
  EXPECT_EQ(m.eos_ids, std::vector<int64_t>{2});
  EXPECT_EQ(m.vocab_size, 320);
  EXPECT_EQ(m.hidden_size, 64);
  EXPECT_EQ(m.context_length, 48);
  EXPECT_EQ(m.prefill_length, 8);
  EXPECT_EQ(m.num_layers, 3);
  for (const ManifestMethod& method : m.components.front().programs.front().methods) {
    SCOPED_TRACE(method.name);
    const ManifestPort& mask = *find_port(method.inputs, "attention_mask");
    ASSERT_TRUE(mask.encoding);
    EXPECT_EQ(mask.encoding->zero_point, 65535);
    const Encoding key{0.038465052959965725, 131}, value{0.0361508706036736, 120};
    EXPECT_EQ(find_port(method.inputs, "k_cache_0")->encoding, key);
    EXPECT_EQ(find_port(method.outputs, "new_k_0")->encoding, key);
    EXPECT_EQ(find_port(method.inputs, "v_cache_0")->encoding, value);
    EXPECT_EQ(find_port(method.outputs, "new_v_0")->encoding, value);
    EXPECT_EQ(find_port(method.outputs, "logits")->encoding,
              (Encoding{0.00016084119348983665, 33922}));
  }
}

TEST(LoosePrograms, StatementsOfAnEncodingMustAgree) {
  MappedFile file = *MappedFile::open(kKv8);
  const pte::Program program = pte::read_program(file.bytes(), "a.pte")->program;
  const auto named_with = [&](const std::string& changed, size_t output, const pte::Value& value) {
    pte::Program copy = program;
    for (pte::Method& m : copy.methods) {
      if (m.name == changed) m.values[static_cast<size_t>(m.outputs[output])] = value;
    }
    return name_static_decoder(*copy.find("kv_forward"), {copy, "a.pte"}, std::nullopt);
  };
  const auto logits = named_with("get_logits_zero_point", 0, int64_t{5});
  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().message.find(
                "a.pte: method 'kv_forward': logits is u16 with two encodings: (scale 0.00016"),
            0u)
      << logits.error().message;
  const auto key = named_with("get_kv_output_1_quant_attr", 0, 0.5);
  ASSERT_FALSE(key);
  EXPECT_NE(key.error().message.find("new_k_1 is u8 with two encodings: (scale 0.5, zero point "
                                     "129, codes 0 to 255) and (scale 0.0459"),
            std::string::npos)
      << key.error().message;
}

// The official program has one encoding. These constant methods state other encodings for
// prefill_forward.
TEST(LoosePrograms, StatementsOfPrefillEncodingsMustAgree) {
  MappedFile file = *MappedFile::open(kKv8);
  const pte::Program program = pte::read_program(file.bytes(), "a.pte")->program;
  const auto error = [&](const std::string& of,
                         const std::vector<std::pair<std::string, pte::Value>>& statements) {
    pte::Program copy = program;
    for (const auto& [name, value] : statements) {
      pte::Method statement;
      statement.name = name;
      statement.values = {value};
      statement.outputs = {0};
      copy.methods.push_back(std::move(statement));
    }
    const auto named = name_static_decoder(*copy.find(of), {copy, "a.pte"}, std::nullopt);
    return named ? std::string() : named.error().message;
  };
  const std::string prefill = "prefill_forward", kv = "kv_forward";
  EXPECT_EQ(error(prefill, {}), "");
  EXPECT_EQ(error(prefill, {{"get_k_scale_output_0", 0.5}}),
            "a.pte: method 'prefill_forward': new_k_0 is u8 with the scale of its encoding only");
  EXPECT_EQ(error(kv, {{"get_v_zero_point_input_1", int64_t{3}}}),
            "a.pte: method 'kv_forward': v_cache_1 is u8 with the zero point of its encoding only");
  const auto both = [&](const std::string& of, const std::string& tensor, const std::string& side) {
    return error(of, {{"get_" + tensor + "_scale_" + side, 0.5},
                      {"get_" + tensor + "_zero_point_" + side, int64_t{3}}});
  };
  EXPECT_EQ(both(prefill, "v", "output_1")
                .find("a.pte: method 'prefill_forward': new_v_1 is u8 with two encodings: (scale "
                      "0.5, zero point 3, codes 0 to 255) and "),
            0u);
  EXPECT_EQ(both(kv, "k", "input_0")
                .find("a.pte: method 'kv_forward': k_cache_0 is u8 with two encodings: "),
            0u);
  // Encodings of the other method are not compared.
  EXPECT_EQ(both(kv, "v", "output_1"), "");
  EXPECT_EQ(both(prefill, "k", "input_0"), "");
}

TEST(LoosePrograms, WhatIsNoTextDecoderIsRefused) {
  const std::string linear = FERRY_TESTDATA "/official_pte/linear_ext.pte";
  const auto bundle = open_loose_programs({.text_decoder = linear});
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().message.find(linear + ": method 'forward': "), 0u)
      << bundle.error().message;
}

}  // namespace
}  // namespace ferry::packer::loose_programs_test
