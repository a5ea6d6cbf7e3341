__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    for (int turn = 0; turn < 8; turn++) {
        const int q = part * 8 + team + turn * 1;
        #pragma unroll 4
        for (int item = 0; item < 4; item++) {
            const int p = lane + item * 16;
            const float v0 = in0[(q / 64) * 4096 + (q / 16 % 4) * 64 + (q % 16) * 256 + p];
            const float v1 = in1[(q / 16 % 4) * 64 + p];
            const float v2 = v0 + v1;
            out0[q * 64 + p] = v2;
        }
    }
}
