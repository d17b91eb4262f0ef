/* CRC-32C (Castagnoli, reflected, polynomial 0x82F63B78): eight bytes a step by eight tables. */
#include "kernel.h"

static uint32_t tables[8][256];

void crc32c_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0);
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        for (int table = 1; table < 8; table++) {
            uint32_t before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
}

uint32_t crc32c_of(const uint8_t *input, size_t size)
{
    uint32_t crc = 0xFFFFFFFFU;
    for (; size >= 8; input += 8, size -= 8) {
        uint32_t low = load32(input) ^ crc, high = load32(input + 4);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24]
              ^ tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
    }
    for (; size; input++, size--) crc = crc >> 8 ^ tables[0][(crc ^ *input) & 0xFF];
    return ~crc;
}
