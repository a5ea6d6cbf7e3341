__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global float* restrict out0) {
    __local float tile0[16640];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int row = (part / 4) * 64;
    const int column = part % 4 * 256;
    for (int i = 0; i < 256; i++) {
        #pragma unroll 4
        for (int step = 0; step < 4; step++) {
            const int j = row + lane + step * 16;
            tile0[i * 65 + lane + step * 16] = in0[j + (column + i) * 1024];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int turn = 0; turn < 64; turn++) {
        const int q = (part / 4) * 64 + team + turn * 1;
        #pragma unroll 4
        for (int item = 0; item < 16; item++) {
            const int p = part % 4 * 256 + lane + item * 16;
            const float v0 = tile0[(p - column) * 65 + (q - row)];
            const float v1 = in1[q * 1024 + p];
            const float v2 = v0 + v1;
            out0[q * 1024 + p] = v2;
        }
    }
}
