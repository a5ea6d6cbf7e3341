static inline long max_i64(long a, long b) { return a > b ? a : b; }
static inline long min_i64(long a, long b) { return a < b ? a : b; }
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const long* restrict in1, __global const float* restrict in2, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    for (int turn = 0; turn < 3; turn++) {
        const int q = part * 3 + team + turn * 1;
        const long v0 = in1[q];
        const long v3 = max_i64((min_i64(((v0 < 0L) ? (v0 + 1000L) : v0), 999L)), 0L);
        #pragma unroll 4
        for (int item = 0; item < 6; item++) {
            const int p = lane + item * 16;
            const float v4 = in0[p + ((int)v3) * 96];
            const float v5 = in2[(q % 24) * 96 + p];
            const float v6 = v4 + v5;
            out0[q * 96 + p] = v6;
        }
    }
}
