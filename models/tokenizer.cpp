#include "models/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>

#include "models/architecture.h"
#include "models/tokenizers/bpe.h"
#include "models/tokenizers/pretokenizer.h"
#include "models/tokenizers/unicode.h"

namespace troupe {

namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidFile, std::move(message)};
}

// The file format's numbers.
enum class TokenKind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Tokens that end a turn by convention, whether or not the file names them as its eos token.
constexpr std::array<std::string_view, 8> kEndTexts = {
    "<|endoftext|>", "<|im_end|>",    "<|eot_id|>", "<|eom_id|>",
    "<|end|>",       "<end_of_turn>", "<|EOT|>",    "</s>"};

bool looks_like_control(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         std::find(kEndTexts.begin(), kEndTexts.end(), text) != kEndTexts.end();
}

// Texts to look for inside others: the longest that starts at a position wins.
class TextFinder {
 public:
  void add(std::string_view text, uint32_t token) {
    if (text.empty()) return;
    token_of_.emplace(text, token);
    starts_.set(static_cast<unsigned char>(text.front()));
    const auto place =
        std::lower_bound(lengths_.begin(), lengths_.end(), text.size(), std::greater<>());
    if (place == lengths_.end() || *place != text.size()) lengths_.insert(place, text.size());
  }

  std::optional<uint32_t> find(std::string_view text) const {
    const auto found = token_of_.find(text);
    if (found == token_of_.end()) return std::nullopt;
    return found->second;
  }

  struct Match {
    size_t offset;  // text.size() if there is none
    size_t bytes;
    uint32_t token;
  };
  Match first_in(std::string_view text, size_t offset) const {
    for (; offset < text.size(); ++offset) {
      if (!starts_.test(static_cast<unsigned char>(text[offset]))) continue;
      for (const size_t length : lengths_) {
        if (length > text.size() - offset) continue;
        if (const auto token = find(text.substr(offset, length))) return {offset, length, *token};
      }
    }
    return {text.size(), 0, 0};
  }

 private:
  std::unordered_map<std::string_view, uint32_t> token_of_;
  std::vector<size_t> lengths_;  // of the texts, longest first
  std::bitset<256> starts_;
};

}  // namespace

struct Tokenizer::Vocabulary {
  std::string bytes;  // of all tokens, one after another; never changes once the views below exist
  std::vector<uint32_t> starts;  // [size + 1] into bytes
  std::vector<TokenKind> kinds;  // [size]
  std::vector<bool> ends;        // [size]
  std::optional<BytePairEncoder> encoder;
  PreTokenizer pre_tokenizer = PreTokenizer::kGpt2;
  TextFinder always;   // user-defined tokens: text, but never cut
  TextFinder special;  // those and the special ones
  std::optional<uint32_t> begin, end;
  bool wants_begin = false;

  uint32_t size() const { return static_cast<uint32_t>(kinds.size()); }
  std::string_view piece(uint32_t token) const {
    return std::string_view(bytes).substr(starts[token], starts[token + 1] - starts[token]);
  }
  bool is_special(uint32_t token) const {
    return kinds[token] == TokenKind::kControl || kinds[token] == TokenKind::kUnknown;
  }
};

class VocabularyReader {
 public:
  explicit VocabularyReader(const GgufFile& file) : file_(file) {}

  Result<Tokenizer> run() {
    TROUPE_TRY(const std::string_view model, file_.text("tokenizer.ggml.model"));
    if (model != "gpt2")
      return invalid(fmt::format("tokenizer model '{}', supported is gpt2 (byte-level BPE)",
                                 printable(model)));
    TROUPE_TRY(const std::string_view pre, file_.text("tokenizer.ggml.pre"));
    TROUPE_TRY(vocabulary_->pre_tokenizer, parse_pre_tokenizer(pre));
    TROUPE_TRY(tokens_, file_.texts("tokenizer.ggml.tokens"));
    if (tokens_.empty() || tokens_.size() > kModelVocabularyMax)
      return invalid(
          fmt::format("{} tokens, allowed are 1 to {}", tokens_.size(), kModelVocabularyMax));
    TROUPE_TRY_VOID(read_kinds());
    TROUPE_TRY_VOID(read_pieces());
    TROUPE_TRY_VOID(read_merges());
    index_special();
    TROUPE_TRY_VOID(read_ends());
    return Tokenizer(std::move(vocabulary_));
  }

 private:
  Result<void> read_kinds() {
    vocabulary_->kinds.assign(tokens_.size(), TokenKind::kNormal);
    if (!file_.has("tokenizer.ggml.token_type")) return {};
    TROUPE_TRY(const std::vector<int64_t> kinds, file_.integers("tokenizer.ggml.token_type"));
    if (kinds.size() != tokens_.size())
      return invalid(fmt::format("{} entries in tokenizer.ggml.token_type for {} tokens",
                                 kinds.size(), tokens_.size()));
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] < 1 || kinds[i] > 6)
        return invalid(fmt::format("token {} is of type {}, known are 1 to 6", i, kinds[i]));
      vocabulary_->kinds[i] = static_cast<TokenKind>(kinds[i]);
      // Files exist that call these user-defined; then a client could write them.
      if (vocabulary_->kinds[i] == TokenKind::kUserDefined && looks_like_control(tokens_[i]))
        vocabulary_->kinds[i] = TokenKind::kControl;
    }
    return {};
  }

  // A normal token is spelled in the byte alphabet; the others (and a normal one that is not) stand
  // for themselves.
  Result<void> read_pieces() {
    vocabulary_->starts.push_back(0);
    std::string decoded;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view token = tokens_[i];
      if (token.size() > kTokenBytesMax)
        return invalid(
            fmt::format("token {} has {} bytes, limit {}", i, token.size(), kTokenBytesMax));
      const bool spelled =
          vocabulary_->kinds[i] == TokenKind::kNormal && decode_spelling(token, decoded);
      vocabulary_->bytes.append(spelled ? std::string_view(decoded) : token);
      if (vocabulary_->bytes.size() > UINT32_MAX)
        return invalid("the texts of all tokens together exceed 4 GiB");
      vocabulary_->starts.push_back(static_cast<uint32_t>(vocabulary_->bytes.size()));
    }
    return {};
  }

  static bool decode_spelling(std::string_view token, std::string& decoded) {
    decoded.clear();
    while (!token.empty()) {
      const DecodedCodePoint point = decode_utf8(token);
      const auto byte =
          point.status == Utf8Status::kValid ? byte_of_code_point(point.code_point) : std::nullopt;
      if (!byte.has_value()) return false;
      decoded.push_back(static_cast<char>(*byte));
      token.remove_prefix(point.bytes);
    }
    return true;
  }

  Result<void> read_merges() {
    std::unordered_map<std::string_view, uint32_t> token_of;
    token_of.reserve(tokens_.size());
    for (uint32_t i = 0; i < tokens_.size(); ++i) {
      const bool fresh = token_of.emplace(tokens_[i], i).second;
      if (!fresh) return invalid(fmt::format("token '{}' appears twice", printable(tokens_[i])));
    }
    // Text never becomes a special or an unused token by merging.
    for (uint32_t i = 0; i < tokens_.size(); ++i)
      if (vocabulary_->kinds[i] != TokenKind::kNormal) token_of.erase(tokens_[i]);
    TROUPE_TRY(const auto merges, file_.texts("tokenizer.ggml.merges"));
    if (merges.size() > kModelVocabularyMax)
      return invalid(fmt::format("{} merges, limit {}", merges.size(), kModelVocabularyMax));
    TROUPE_TRY(vocabulary_->encoder, BytePairEncoder::make(token_of, merges));
    return {};
  }

  void index_special() {
    Tokenizer::Vocabulary& vocabulary = *vocabulary_;
    for (uint32_t i = 0; i < vocabulary.size(); ++i) {
      const bool user_defined = vocabulary.kinds[i] == TokenKind::kUserDefined;
      if (user_defined) vocabulary.always.add(vocabulary.piece(i), i);
      if (user_defined || vocabulary.is_special(i)) vocabulary.special.add(vocabulary.piece(i), i);
    }
  }

  Result<std::optional<uint32_t>> token_id(const char* key) {
    if (!file_.has(key)) return std::optional<uint32_t>();
    TROUPE_TRY(const uint64_t token, file_.unsigned_integer(key));
    if (token >= vocabulary_->size())
      return invalid(
          fmt::format("{} is {}, the vocabulary has {} tokens", key, token, vocabulary_->size()));
    return std::optional<uint32_t>(static_cast<uint32_t>(token));
  }

  Result<void> read_ends() {
    Tokenizer::Vocabulary& vocabulary = *vocabulary_;
    vocabulary.ends.assign(vocabulary.size(), false);
    TROUPE_TRY(vocabulary.begin, token_id("tokenizer.ggml.bos_token_id"));
    TROUPE_TRY(vocabulary.end, token_id("tokenizer.ggml.eos_token_id"));
    if (vocabulary.end.has_value()) vocabulary.ends[*vocabulary.end] = true;
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      TROUPE_TRY(const std::optional<uint32_t> token, token_id(key));
      if (token.has_value()) vocabulary.ends[*token] = true;
    }
    for (const std::string_view text : kEndTexts)
      if (const auto token = vocabulary.special.find(text); token && vocabulary.is_special(*token))
        vocabulary.ends[*token] = true;
    if (file_.has("tokenizer.ggml.add_bos_token")) {
      TROUPE_TRY(vocabulary.wants_begin, file_.boolean("tokenizer.ggml.add_bos_token"));
    }
    if (vocabulary.wants_begin && !vocabulary.begin.has_value())
      return invalid("tokenizer.ggml.add_bos_token is set, but there is no bos_token_id");
    return {};
  }

  const GgufFile& file_;
  std::span<const std::string_view> tokens_;
  std::shared_ptr<Tokenizer::Vocabulary> vocabulary_ = std::make_shared<Tokenizer::Vocabulary>();
};

Result<Tokenizer> Tokenizer::from(const GgufFile& file) {
  return VocabularyReader(file).run();
}

Result<void> Tokenizer::encode_plain(std::string_view text, std::vector<uint32_t>& tokens) const {
  std::vector<std::string_view> pieces;
  pre_tokenize(vocabulary_->pre_tokenizer, text, pieces);
  for (const std::string_view piece : pieces)
    TROUPE_TRY_VOID(vocabulary_->encoder->encode(piece, tokens));
  return {};
}

Result<std::vector<uint32_t>> Tokenizer::encode(std::string_view text,
                                                const EncodeOptions& options) const {
  if (text.size() > options.bytes_max)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("text of {} bytes, limit {}", text.size(), options.bytes_max)};
  if (const size_t valid = valid_utf8_prefix(text); valid != text.size())
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("text is not UTF-8: byte {:#04x} at offset {}",
                             static_cast<unsigned char>(text[valid]), valid)};
  std::vector<uint32_t> tokens;
  if (options.begin_text && vocabulary_->wants_begin) tokens.push_back(*vocabulary_->begin);
  const TextFinder& finder = options.parse_special ? vocabulary_->special : vocabulary_->always;
  size_t offset = 0;
  while (offset < text.size()) {
    const TextFinder::Match match = finder.first_in(text, offset);
    TROUPE_TRY_VOID(encode_plain(text.substr(offset, match.offset - offset), tokens));
    if (match.bytes != 0) tokens.push_back(match.token);
    offset = match.offset + match.bytes;
  }
  return tokens;
}

uint32_t Tokenizer::vocabulary() const {
  return vocabulary_->size();
}

std::string_view Tokenizer::piece(uint32_t token) const {
  return token < vocabulary_->size() ? vocabulary_->piece(token) : std::string_view();
}

bool Tokenizer::is_special(uint32_t token) const {
  return token < vocabulary_->size() && vocabulary_->is_special(token);
}

bool Tokenizer::is_end_of_generation(uint32_t token) const {
  return token < vocabulary_->size() && vocabulary_->ends[token];
}

std::optional<uint32_t> Tokenizer::special(std::string_view text) const {
  const auto token = vocabulary_->special.find(text);
  return token.has_value() && vocabulary_->is_special(*token) ? token : std::nullopt;
}

std::optional<Tokenizer::SpecialMatch> Tokenizer::find_special(std::string_view text,
                                                               size_t offset) const {
  const TextFinder::Match match = vocabulary_->special.first_in(text, offset);
  if (match.bytes == 0) return std::nullopt;
  return SpecialMatch{match.offset, match.bytes, match.token};
}

std::optional<uint32_t> Tokenizer::begin_of_text() const {
  return vocabulary_->begin;
}
std::optional<uint32_t> Tokenizer::end_of_text() const {
  return vocabulary_->end;
}

std::string Detokenizer::feed(uint32_t token) {
  if (tokenizer_.is_special(token) && !show_special_) return {};
  pending_ += tokenizer_.piece(token);
  std::string text;
  size_t offset = 0;
  while (offset < pending_.size()) {
    const DecodedCodePoint decoded = decode_utf8(std::string_view(pending_).substr(offset));
    if (decoded.status == Utf8Status::kIncomplete) break;
    if (decoded.status == Utf8Status::kValid) {
      text.append(pending_, offset, decoded.bytes);
    } else {
      append_utf8(text, kReplacementCharacter);
    }
    offset += decoded.bytes;
  }
  pending_.erase(0, offset);
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  if (!pending_.empty()) append_utf8(text, kReplacementCharacter);
  pending_.clear();
  return text;
}

}  // namespace troupe
